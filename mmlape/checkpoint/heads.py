"""Complete detectors and segmentors as their authors released them: kinds of heads, and their names today.

Most heads of mmcv 1.x kept their names; those of Mask2Former changed. DINOv3's segmentors have names of their own, and
their files, as those of DINOv2's linear heads, leave the frozen ViT out.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mmlape.checkpoint.key_maps import Tensors, Weights, rename_keys
from mmlape.errors import CheckpointError
from mmlape.mim import mim_root

_ENCODER = r'(pixel_decoder\.encoder\.layers\.\d+\.)'
_DECODER = r'(transformer_decoder\.layers\.\d+\.)'
_MMCV_1 = (
    (rf'{_ENCODER}attentions\.0\.', r'\1self_attn.'),
    (rf'{_DECODER}attentions\.0\.', r'\1cross_attn.'),  # of masked attention, which comes first
    (rf'{_DECODER}attentions\.1\.', r'\1self_attn.'),
    (rf'{_ENCODER}ffns\.0\.', r'\1ffn.'),
    (rf'{_DECODER}ffns\.0\.', r'\1ffn.'),
)

_PIXELS = r'^segmentation_model\.1\.pixel_decoder\.'
_PIXEL_LAYER = rf'{_PIXELS}encoder\.encoder\.layers\.(\d+)\.'
_OF_PIXELS = r'decode_head.pixel_decoder.'
_OF_PIXEL_LAYER = rf'{_OF_PIXELS}encoder.layers.\1.'
_QUERIES = r'^segmentation_model\.1\.predictor\.'
_OF_QUERY_LAYER = r'decode_head.transformer_decoder.layers.\1.'
_DINOV3 = (
    (rf'{_PIXELS}input_convs\.(\d+)\.0\.', rf'{_OF_PIXELS}input_convs.\1.conv.'),
    (rf'{_PIXELS}input_convs\.(\d+)\.1\.', rf'{_OF_PIXELS}input_convs.\1.gn.'),
    (rf'{_PIXELS}(lateral|output)_convs\.(\d+)\.norm\.', rf'{_OF_PIXELS}\1_convs.\2.gn.'),
    (rf'{_PIXELS}(lateral|output)_convs\.(\d+)\.', rf'{_OF_PIXELS}\1_convs.\2.conv.'),
    (rf'{_PIXELS}encoder\.level_encoding$', f'{_OF_PIXELS}level_encoding.weight'),
    (rf'{_PIXEL_LAYER}norm1\.', rf'{_OF_PIXEL_LAYER}norms.0.'),
    (rf'{_PIXEL_LAYER}linear1\.', rf'{_OF_PIXEL_LAYER}ffn.layers.0.0.'),
    (rf'{_PIXEL_LAYER}linear2\.', rf'{_OF_PIXEL_LAYER}ffn.layers.1.'),
    (rf'{_PIXEL_LAYER}norm2\.', rf'{_OF_PIXEL_LAYER}norms.1.'),
    (_PIXEL_LAYER, _OF_PIXEL_LAYER),
    (_PIXELS, _OF_PIXELS),
    (rf'{_QUERIES}transformer_cross_attention_layers\.(\d+)\.multihead_attn\.', rf'{_OF_QUERY_LAYER}cross_attn.attn.'),
    (rf'{_QUERIES}transformer_cross_attention_layers\.(\d+)\.norm\.', rf'{_OF_QUERY_LAYER}norms.0.'),
    (rf'{_QUERIES}transformer_self_attention_layers\.(\d+)\.self_attn\.', rf'{_OF_QUERY_LAYER}self_attn.attn.'),
    (rf'{_QUERIES}transformer_self_attention_layers\.(\d+)\.norm\.', rf'{_OF_QUERY_LAYER}norms.1.'),
    (rf'{_QUERIES}transformer_ffn_layers\.(\d+)\.linear1\.', rf'{_OF_QUERY_LAYER}ffn.layers.0.0.'),
    (rf'{_QUERIES}transformer_ffn_layers\.(\d+)\.linear2\.', rf'{_OF_QUERY_LAYER}ffn.layers.1.'),
    (rf'{_QUERIES}transformer_ffn_layers\.(\d+)\.norm\.', rf'{_OF_QUERY_LAYER}norms.2.'),
    (rf'{_QUERIES}post_norm\.', 'decode_head.transformer_decoder.post_norm.'),
    (rf'{_QUERIES}input_proj\.', 'decode_head.decoder_input_projs.'),
    (rf'{_QUERIES}class_embed\.', 'decode_head.cls_embed.'),
    (rf'{_QUERIES}mask_embed\.layers\.0\.', 'decode_head.mask_embed.0.'),
    (rf'{_QUERIES}mask_embed\.layers\.1\.', 'decode_head.mask_embed.2.'),
    (rf'{_QUERIES}mask_embed\.layers\.2\.', 'decode_head.mask_embed.4.'),
    (_QUERIES, 'decode_head.'),
    (r'^segmentation_model\.1\.batchnorm_layer\.', 'decode_head.bn.'),
    (r'^segmentation_model\.1\.conv\.', 'decode_head.conv_seg.'),
    (r'^segmentation_model\.0\.feature_model\.', 'backbone.'),
    (r'^segmentation_model\.0\.', 'backbone.'),
)


@dataclass(frozen=True)
class HeadNames:
    """Names of heads that differ from those of mmdet 3 and mmseg 1.

    Attributes:
        source: Whose names they are, for reports.
        sign: A regular expression that is found in a name of such a file.
        names: What is replaced in a name; the first pattern that is found counts.
    """

    source: str
    sign: str
    names: tuple[tuple[str, str], ...]


HEAD_NAMES = (
    HeadNames("mmcv 1.x's Mask2Former", rf'{_DECODER}attentions\.0\.', _MMCV_1),
    HeadNames("DINOv3's segmentor", r'^segmentation_model\.1\.', _DINOV3),
)


@dataclass(frozen=True)
class HeadKind:
    """A kind of head, by the names of its tensors.

    Attributes:
        name: As papers have it.
        method: As names of configs have it.
        toolbox: 'mmdet' or 'mmseg'.
        sign: A regular expression that matches the beginning of one of its names.
        classes: The name of a tensor with a row for each class, and how many rows more.
    """

    name: str
    method: str
    toolbox: str
    sign: str
    classes: tuple[str, int]


KINDS = (
    HeadKind('Mask2Former', 'mask2former', 'mmseg', r'decode_head\.query_feat\.', ('decode_head.cls_embed.bias', 1)),
    HeadKind('UperNet', 'upernet', 'mmseg', r'decode_head\.psp_modules\.', ('decode_head.conv_seg.bias', 0)),
    HeadKind('linear head', 'linear', 'mmseg', r'decode_head\.(bn|conv_seg)\.', ('decode_head.conv_seg.bias', 0)),
    HeadKind(
        'Mask2Former', 'mask2former', 'mmdet', r'panoptic_head\.query_feat\.', ('panoptic_head.cls_embed.bias', 1)
    ),
    HeadKind(
        'Sparse R-CNN', 'sparse-rcnn', 'mmdet', r'rpn_head\.init_proposal', ('roi_head.bbox_head.0.fc_cls.bias', 0)
    ),
    HeadKind('HTC++', 'htc', 'mmdet', r'roi_head\.semantic_head\.', ('roi_head.bbox_head.0.fc_cls.bias', 1)),
    HeadKind(
        'Cascade Mask R-CNN',
        'cascade-mask-rcnn',
        'mmdet',
        r'roi_head\.mask_head\.0\.',
        ('roi_head.bbox_head.0.fc_cls.bias', 1),
    ),
    HeadKind('Mask R-CNN', 'mask-rcnn', 'mmdet', r'roi_head\.mask_head\.', ('roi_head.bbox_head.fc_cls.bias', 1)),
    HeadKind('ATSS', 'atss', 'mmdet', r'bbox_head\.atss_cls\.', ('bbox_head.atss_cls.bias', 0)),
    HeadKind('GFL', 'gfl', 'mmdet', r'bbox_head\.gfl_cls\.', ('bbox_head.gfl_cls.bias', 0)),
)
PARTS = (
    'neck.', 'rpn_head.', 'roi_head.', 'bbox_head.', 'mask_head.', 'panoptic_head.', 'decode_head.', 'auxiliary_head.',
)  # fmt: skip
LAYER = r'backbone\.(\w+\.)?(blocks|layers)\.0\.'
"""A regular expression of the names of a backbone's first layer in a complete model."""
DERIVED = ('.relative_position_index',)
"""Ends of the names of tensors that a model computes from its arguments; files may hold gigabytes of them."""


DATA = {
    ('mmseg', 150): 'ade20k',
    ('mmseg', 19): 'cityscapes',
    ('mmseg', 171): 'coco-stuff*',
    ('mmseg', 59): 'pascal-context-59',
    ('mmseg', 21): 'voc2012',
    ('mmseg', 6): 'potsdam',
    ('mmseg', 2): 'chase-db1',
    ('mmdet', 80): 'coco',
    ('mmdet', 133): 'coco-panoptic',
}
"""Datasets by their number of classes, as names of configs have them."""
SIZES = {192: 'tiny', 384: 'small', 768: 'base', 1024: 'large', 1536: 'giant', 4096: '7b'}
"""ViTs by their width, as names of configs have them."""
BY_TABLE = {577: 'augreg', 1370: 'dinov2'}
"""Bases by the rows of their position embedding."""
STUDIES = {
    'studies/vit-adapter-coco.yml': {
        'mask-rcnn-base': 'mask-rcnn_deit-base_coco',
        'mask-rcnn-large': 'mask-rcnn_augreg-large_coco',
        'mask-rcnn-uniperceiver': 'mask-rcnn_uni-perceiver-base_coco',
        'mask-rcnn-dinov2-small': 'mask-rcnn_dinov2-small_coco',
        'mask-rcnn-dinov2-base': 'mask-rcnn_dinov2-base_coco',
        'mask-rcnn-dinov2-large': 'mask-rcnn_dinov2-large_coco',
        'upgraded-25e': 'upgraded-mask-rcnn_deit-base_coco',
        'mask-rcnn-vit-tiny': 'mask-rcnn_plain-deit-tiny_coco',
        'mask-rcnn-vit-small': 'mask-rcnn_plain-deit-small_coco',
        'mask-rcnn-vit-base': 'mask-rcnn_plain-deit-base_coco',
        'mask-rcnn-vit-large': 'mask-rcnn_plain-augreg-large_coco',
        'cascade-base': 'cascade-mask-rcnn_deit-base_coco',
        'cascade-vit-base': 'cascade-mask-rcnn_plain-deit-base_coco',
        'htc-uniperceiver': 'htc_uni-perceiver-large_coco',
    },
    'studies/vit-adapter-segmentation.yml': {
        'upernet-base': 'upernet_deit-base_ade20k',
        'upernet-augreg-base': 'upernet_augreg-base_ade20k',
        'upernet-augreg-large': 'upernet_augreg-large_ade20k',
        'upernet-uniperceiver-large': 'upernet_uni-perceiver-large_ade20k',
        'upernet-beit-plain': 'upernet_plain-beit*-large_ade20k',
        'upernet-stuff10k': 'upernet_beit*-large_coco-stuff*',
        'upernet-stuff164k': 'upernet_beit*-large_coco-stuff*',
        'upernet-pascal': 'upernet_beit*-large_pascal-context-59',
        'stuff10k-base': 'mask2former_beit*-base_coco-stuff*',
        'pascal-base': 'mask2former_beit*-base_pascal-context-59',
    },
}
"""Arms of studies, and what ``fitting_configs`` reads of their files, for models that no config is named after."""


def kind_of_head(names: Iterable[str]) -> HeadKind | None:
    """Return the kind of head with these names; None for an unknown one, or none."""
    return next((kind for kind in KINDS if any(re.match(kind.sign, name) for name in names)), None)


def rename_heads(tensors: Tensors) -> tuple[Tensors, str]:
    """Return the tensors of a complete model under mmdet 3's and mmseg 1's names, and whose names the file has.

    The second is empty where the file has today's names already.
    """
    for layout in HEAD_NAMES:
        if any(re.search(layout.sign, name) for name in tensors):
            return rename_keys(tensors, layout.names), layout.source
    return tensors, ''


def toolbox_file(
    stored: Tensors, translate: Callable[[Tensors], tuple[Tensors, list[str]]], to: str, path: object
) -> tuple[Tensors, list[str]]:
    """Return the tensors of a complete model under the names of a toolbox's model over a backbone of this package.

    Args:
        stored: The file's tensors.
        translate: Returns those of the backbone by its own names, and what it leaves out, from those of the file.
        to: 'mmdet' or 'mmseg'.
        path: The file, for messages.

    Returns:
        The tensors, and names of the source that were left out.

    Raises:
        CheckpointError: If there is no known head, or one of the other toolbox.
    """
    renamed, _ = rename_heads(stored)
    kind = kind_of_head(renamed)
    if kind is None or kind.toolbox != to:
        what = f'a model of {kind.toolbox} ({kind.name})' if kind else 'no detector or segmentor with a known head'
        raise CheckpointError(f'{path}: {what}, which --to {to} does not write')
    heads = {name: value for name, value in renamed.items() if name.startswith(PARTS)}
    own = {name: value for name, value in renamed.items() if name not in heads and not name.endswith(DERIVED)}
    dropped = [name for name in renamed if name.endswith(DERIVED)]
    if any(re.match(LAYER, name) for name in own):
        backbone, left_out = translate({name.removeprefix('backbone.'): value for name, value in own.items()})
        own, dropped = {f'backbone.{name}': value for name, value in backbone.items()}, dropped + left_out
    return {**own, **heads}, dropped


def describe_heads(stored: Tensors) -> tuple[HeadKind | None, dict[str, str]]:
    """Return the kind of head in a file, and printable values of it by name: empty without one."""
    renamed, source = rename_heads(stored)
    if not any(name.startswith(PARTS) for name in renamed):
        return None, {}
    kind = kind_of_head(renamed)
    if kind is None:
        return None, {'model': f'its head is of no known layout (first name: {first_of_heads(renamed)})'}
    classes = _classes(kind, renamed)
    rows = {'model': f'{kind.name} of {kind.toolbox}, {classes} classes'}
    queries = renamed.get(f'{kind.classes[0].split(".")[0]}.query_feat.weight')
    rows['model'] += f', {len(queries)} queries' if queries is not None else ''
    rows['names of its head'] = f'those of {source}; the loader renames them' if source else "today's"
    return kind, rows


def _classes(kind: HeadKind, tensors: Tensors) -> int:
    name, more = kind.classes
    return len(tensors[name]) - more if name in tensors else 0


def fitting_configs(stored: Tensors, weights: Weights) -> list[str]:
    """Return the configs, below ``configs``, whose names have the method, base, size and dataset of a complete model.

    ``stored`` are its tensors, ``weights`` those of its backbone. Without such a config it is the arm of a study.
    """
    tensors, _ = rename_heads(stored)
    kind = kind_of_head(tensors)
    stem = next((value for name, value in weights.tensors.items() if name.endswith('patch_embed.proj.weight')), None)
    if kind is None or stem is None:
        return []
    base = 'deit'
    if weights.has(r'.*\.relative_position_bias_table$'):
        base = 'beit*'
    elif weights.layout.startswith('dinov3'):
        base = 'dinov3'
    elif stem.shape[-1] == 14:
        base = 'dinov2'
    elif weights.layout.startswith('uni-perceiver'):
        base = 'uni-perceiver'
    else:
        base = BY_TABLE.get(weights.tensors.get('pos_embed', stem).shape[1], 'deit')
    size, data = SIZES.get(len(stem), ''), DATA.get((kind.toolbox, _classes(kind, tensors)))
    plain = weights.layout.endswith('-baseline')
    upgraded = kind.method == 'mask-rcnn' and any('.shared_convs.' in name for name in tensors)
    known = f'{"upgraded-" * upgraded}{kind.method}_{"plain-" * plain}{base}-{size}_{data}'
    arms = [f'{study}:{arm}' for study, arms in STUDIES.items() for arm, of in arms.items() if of == known]
    archs = [f'vit{size[:1]}14-dinov2'] * (base == 'dinov2') + [f'{base}-{size}']
    return arms or [name for arch in archs if not plain for name in _named(f'{kind.method}_{arch}*_{data}')]


def linear_configs(tensors: Tensors) -> list[str]:
    """Return the configs for a file with DINOv2's linear head alone, by the width of its norm."""
    norm = tensors.get('decode_head.bn.weight')
    width = 0 if norm is None else len(norm)
    ends = [f'{size[0]}14-dinov2{end}' for dims, size in SIZES.items() for end, maps in (('', 1), ('-ms', 4))
            if dims * maps == width]  # fmt: skip
    return [name for end in ends for name in _named(f'linear_vit{end}_*')]


def _named(pattern: str) -> list[str]:
    """Return the configs of such names, below ``configs``, but for those with LaPE, which no released model has."""
    configs = mim_root() / 'configs'
    found = sorted(str(path.relative_to(configs)) for path in configs.rglob(f'{pattern}.py'))
    return [name for name in found if '-lape' not in name]


def first_of_heads(names: Iterable[str]) -> str:
    """Return the first name of a tensor that belongs to a head or neck."""
    return min(name for name in names if name.startswith(PARTS))
