"""Complete detectors and segmentors as their authors released them: kinds of heads, and their names today.

Most heads of mmcv 1.x kept their names; those of Mask2Former changed. DINOv3's segmentors have names of their own, and
their files, as those of DINOv2's linear heads, leave the frozen ViT out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mmlape.checkpoint.exact_loading import LoadOptions, LoadReport, summary_of_resized
from mmlape.checkpoint.key_maps import Layout, Tensors, recognise, recognise_backbone, rename_keys
from mmlape.checkpoint.metadata import parts_with_adapter
from mmlape.checkpoint.opening import OpenedFile
from mmlape.errors import CheckpointError

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

_NET = 'bbox_head.net.'
PLAIN_DETR = (
    (r'^(?:transformer\.decoder\.)?(class|bbox)_embed\.', rf'{_NET}\1_embed.'),  # both of the same tensors
    (r'^transformer\.decoder\.final_layer_norm\.', f'{_NET}norm.'),
    (r'^transformer\.decoder\.layers\.', f'{_NET}layers.'),
    (r'^transformer\.encoder\.layers\.', f'{_NET}encoder.'),
    (r'^transformer\.', _NET),
    (r'^input_proj\.0\.', f'{_NET}input_proj.'),
    (r'^query_embed\.', f'{_NET}query_embed.'),
)
UNUSED_IDS = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""Rows of a class head by COCO category id that no category has."""
_LAST_ID = 90


def _of_categories(tensors: Tensors) -> Tensors:
    """Return the tensors of Plain-DETR with a row for each of COCO's categories, where they have one for each id.

    The last class head is that of proposals, whose first row says whether there is an object.
    """
    names = sorted((name for name in tensors if re.match(rf'{_NET}class_embed\.\d+\.bias', name)), key=len)
    used = torch.tensor([row for row in range(_LAST_ID + 1) if row not in UNUSED_IDS])
    for name in names if names and len(tensors[names[0]]) == _LAST_ID + 1 else ():
        rows = torch.arange(len(used)) if name == names[-1] else used
        for each in (name, name.replace('bias', 'weight')):
            tensors[each] = tensors[each][rows]
    return tensors


HEAD_LAYOUTS = (
    Layout(
        "mmcv 1.x's Mask2Former",
        (rf'.*{_DECODER}attentions\.0\.',),
        lambda tensors: rename_keys(tensors, _MMCV_1),
        complete=True,
    ),
    Layout(
        "DINOv3's segmentor",
        (r'segmentation_model\.1\.',),
        lambda tensors: rename_keys(tensors, _DINOV3),
        complete=True,
    ),
    Layout(
        "Plain-DETR's or DINOv3's detector",
        (r'transformer\..*\.cpb_mlp1\.',),
        lambda tensors: _of_categories(rename_keys(tensors, PLAIN_DETR)),
        complete=True,
    ),
)
"""Names of heads that differ from those of mmdet 3 and mmseg 1."""


@dataclass(frozen=True)
class HeadKind:
    """A kind of head, by the names of its tensors.

    Attributes:
        name: As papers have it.
        toolbox: 'mmdet' or 'mmseg'.
        sign: A regular expression that matches the beginning of one of its names.
        scores: The name of a tensor with a row for each class.
        more: How many rows more that has, for no object or the background.
    """

    name: str
    toolbox: str
    sign: str
    scores: str
    more: int = 0


KINDS = (
    HeadKind('Mask2Former', 'mmseg', r'decode_head\.query_feat\.', 'decode_head.cls_embed.bias', more=1),
    HeadKind('UperNet', 'mmseg', r'decode_head\.psp_modules\.', 'decode_head.conv_seg.bias'),
    HeadKind('Segmenter', 'mmseg', r'decode_head\.cls_emb$', 'decode_head.mask_norm.bias'),
    HeadKind(
        'Plain Mask Decoder',
        'mmseg',
        r'decode_head\.decoder\.class_head\.',
        'decode_head.decoder.class_head.bias',
        more=1,
    ),
    HeadKind('linear head', 'mmseg', r'decode_head\.(bn|conv_seg)\.', 'decode_head.conv_seg.bias'),
    HeadKind('Mask2Former', 'mmdet', r'panoptic_head\.query_feat\.', 'panoptic_head.cls_embed.bias', more=1),
    HeadKind('Sparse R-CNN', 'mmdet', r'rpn_head\.init_proposal', 'roi_head.bbox_head.0.fc_cls.bias'),
    HeadKind('HTC++', 'mmdet', r'roi_head\.semantic_head\.', 'roi_head.bbox_head.0.fc_cls.bias', more=1),
    HeadKind('Cascade Mask R-CNN', 'mmdet', r'roi_head\.mask_head\.0\.', 'roi_head.bbox_head.0.fc_cls.bias', more=1),
    HeadKind(
        'upgraded Mask R-CNN',
        'mmdet',
        r'roi_head\.bbox_head\.shared_convs\.',
        'roi_head.bbox_head.fc_cls.bias',
        more=1,
    ),
    HeadKind('Mask R-CNN', 'mmdet', r'roi_head\.mask_head\.', 'roi_head.bbox_head.fc_cls.bias', more=1),
    HeadKind('Faster R-CNN', 'mmdet', r'roi_head\.bbox_head\.fc_cls\.', 'roi_head.bbox_head.fc_cls.bias', more=1),
    HeadKind('Plain-DETR', 'mmdet', r'bbox_head\.net\.bbox_embed\.', f'{_NET}class_embed.0.bias'),
    HeadKind('DETR', 'mmdet', r'bbox_head\.fc_cls\.', 'bbox_head.fc_cls.bias', more=1),
    HeadKind('ATSS', 'mmdet', r'bbox_head\.atss_cls\.', 'bbox_head.atss_cls.bias'),
    HeadKind('GFL', 'mmdet', r'bbox_head\.gfl_cls\.', 'bbox_head.gfl_cls.bias'),
)
PARTS = (
    'neck.', 'rpn_head.', 'roi_head.', 'bbox_head.', 'mask_head.', 'panoptic_head.', 'decode_head.', 'auxiliary_head.',
)  # fmt: skip
LAYER = r'backbone\.(\w+\.)?(blocks|layers)\.0\.'
"""A regular expression of the names of a backbone's first layer in a complete model."""
DERIVED = ('.relative_position_index',)
"""Ends of the names of tensors that a model computes from its arguments; files may hold gigabytes of them."""


def kind_of_head(names: Iterable[str]) -> HeadKind | None:
    """Return the kind of head with these names; None for an unknown one, or none."""
    return next((kind for kind in KINDS if any(re.match(kind.sign, name) for name in names)), None)


def rename_heads(tensors: Tensors) -> tuple[Tensors, str]:
    """Return the tensors of a complete model under mmdet 3's and mmseg 1's names, and whose names the file has.

    The second is empty where the file has today's names already.
    """
    for layout in HEAD_LAYOUTS:
        if layout.rename and layout.named(tensors) is not None:
            return layout.rename(tensors), layout.name
    return tensors, ''


def toolbox_file(stored: Tensors, to: str, path: object) -> tuple[Tensors, list[str]]:
    """Return the tensors of a complete model under the names of a toolbox's model over a backbone of this package.

    Args:
        stored: The file's tensors.
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
    of_backbone = {name: value for name, value in renamed.items() if name not in heads and not name.endswith(DERIVED)}
    dropped = [name for name in renamed if name.endswith(DERIVED)]
    if any(re.match(LAYER, name) for name in of_backbone):
        bare = {name.removeprefix('backbone.'): value for name, value in of_backbone.items()}
        _, weights = recognise_backbone(OpenedFile(bare, str(path)))
        of_backbone = {f'backbone.{name}': value for name, value in weights.tensors.items()}
        dropped += weights.dropped
    return {**of_backbone, **heads}, dropped


def describe_heads(stored: Tensors) -> dict[str, str]:
    """Return printable values of the head in a file, by name; empty without one."""
    renamed, source = rename_heads(stored)
    if not any(name.startswith(PARTS) for name in renamed):
        return {}
    kind = kind_of_head(renamed)
    if kind is None:
        return {'model': f'its head is of no known layout (first name: {first_of_heads(renamed)})'}
    classes = len(renamed[kind.scores]) - kind.more if kind.scores in renamed else 0
    queries = renamed.get(f'{kind.scores.partition(".")[0]}.query_feat.weight')
    counts = f'{classes} classes' if queries is None else f'{classes} classes, {len(queries)} queries'
    return {
        'model': f'{kind.name} of {kind.toolbox}, {counts}',
        'names of its head': f'those of {source}; the loader renames them' if source else "today's",
    }


def first_of_heads(names: Iterable[str]) -> str:
    """Return the first name of a tensor that belongs to a head or neck."""
    return min(name for name in names if name.startswith(PARTS))


def fit_released(model: nn.Module, stored: Tensors, options: LoadOptions, report: LoadReport) -> Tensors:
    """Translate the tensors of a complete model that other code has written.

    The heads get today's names; the backbones are read as ``load_backbone`` reads them, where that makes them fit
    exactly. Where the file holds no layer of a backbone, the file that its ``init_cfg`` names is loaded.

    Args:
        model: The model.
        stored: The file's tensors.
        options: How a backbone's checkpoint is loaded.
        report: Gets what was renamed and dropped.

    Returns:
        The tensors under the model's names, those of a backbone's own file among them.

    Raises:
        CheckpointError: If the file holds a head without its backbone, and ``init_cfg`` names no file of that.
    """
    names_of_model = set(model.state_dict())
    renamed, source = rename_heads({name: value for name, value in stored.items() if name not in names_of_model})
    tensors = {name: value for name, value in stored.items() if name in names_of_model} | renamed
    derived = [name for name in tensors if name.endswith(DERIVED) and name not in names_of_model]
    report.dropped += derived
    tensors = {name: value for name, value in tensors.items() if name not in derived}
    lent: Tensors = {}
    for name, backbone in parts_with_adapter(model).items():
        if name and any(key.startswith(PARTS) for key in tensors):
            tensors = _fit_backbone(name, backbone, tensors, options, report, lent)
    if source:
        count = sum(name not in stored for name in tensors)
        report.renamed = f'{count} tensors, from the names of {source}'
    return tensors | lent


def _fit_backbone(
    name: str, backbone: Any, tensors: Tensors, options: LoadOptions, report: LoadReport, lent: Tensors
) -> Tensors:
    """Give a backbone's tensors its own names, or load it from the file that its ``init_cfg`` names, into ``lent``."""
    prefix = f'{name}.'
    stored = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    wanted = {key: value.shape for key, value in backbone.state_dict().items()}
    if set(stored) == set(wanted):
        return tensors
    first = backbone.layer_names[0]
    if not any(key.startswith(first) for key in wanted if key in stored) and set(stored) <= set(wanted):
        lent |= _load_elsewhere(name, backbone, set(stored), report)
        return tensors
    adapter, report_of_part = backbone.checkpoint_adapter, LoadReport(report.path, '')
    try:
        weights = recognise(OpenedFile(stored, report.path), adapter.layouts(type(backbone)))
        fitted = adapter.fit(backbone, weights, options, report_of_part)
    except CheckpointError:
        fitted = {}
    if {key: value.shape for key, value in fitted.items()} != wanted:
        return tensors  # strict loading names what does not fit
    report.problems += report_of_part.problems
    if report_of_part.resized:
        report.problems.append(f'wrong img_size of {name}, for which it {summary_of_resized(report_of_part.resized)}')
    report.dropped += [prefix + key for key in report_of_part.dropped]
    rest = {key: value for key, value in tensors.items() if not key.startswith(prefix)}
    return rest | {prefix + key: value for key, value in fitted.items()}


def _load_elsewhere(name: str, backbone: Any, stored: set[str], report: LoadReport) -> Tensors:
    """Load a backbone from the file that its ``init_cfg`` names; return those of its tensors that are not stored."""
    if backbone.init_cfg:
        backbone.init_weights()
    if backbone.load_report is None:
        raise CheckpointError(
            f'checkpoint {report.path}: a head without its {name}, whose file the config does not name: pass '
            f'--cfg-options model.{name}.init_cfg.type=Pretrained model.{name}.init_cfg.checkpoint=FILE'
        )
    state = backbone.state_dict()
    lent = {f'{name}.{key}': state[key] for key in backbone.load_report.loaded if key not in stored}
    report.notes.append(f'{len(lent)} tensors of the {name} are those of {backbone.load_report.path}')
    return lent
