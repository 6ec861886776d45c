"""The entry of a config in the metafiles, with the paper's results, and the paper's name of a model."""

import functools
from dataclasses import dataclass
from pathlib import Path

import yaml

from mmlape.mim import mim_root

METRICS = {
    'box AP': 'coco/bbox_mAP',
    'mask AP': 'coco/segm_mAP',
    'mIoU': 'mIoU',
    'top-1': 'accuracy/top1',
    '25-shot': 'few-shot/25-shot',
}
"""The keys of the metrics that the metafiles quote."""

JOININGS = {
    'default': 'Default',
    'shared': 'Shared',
    'unshared': 'Unshared',
    'lape': 'LaPE',
    'lape-shared': 'LaPE, sharing PE',
}
_SCALES = {'tiny': 'Ti', 'small': 'S', 'base': 'B', 'large': 'L'}
_INSIDE = {
    'rpe': 'RPE',
    'irpe': 'iRPE',
    'shaw': 'Shaw',
    'huang': 'Huang',
    'axial-deeplab': 'Axial-DeepLab',
    'transformer-xl': 'Transformer-XL',
    'sasa': 'SASA',
    'rope': 'RoPE',
    'rope-mixed': 'RoPE-Mixed',
    'alibi2d': 'ALiBi',
    'cpe': 'CPE',
}
"""The papers' names of encodings inside attention or between layers."""
_FAMILIES = {'SwinTransformer': 'Swin', 'CeiT': 'CeiT', 'T2TViT': 'T2T-ViT', 'CompactTransformer': ''}
"""The papers' names of backbones other than DeiT's ViT; '' where the arch is the complete name."""
_OWN_TABLES = {'T2TViT': 'sincos1d', 'DETR': 'sine'}
"""The table of a family's default PE, where it is not 'learnable'."""


@dataclass(frozen=True)
class Quotation:
    """The figures of one paper for a config.

    Attributes:
        paper: 'LaPE (ICCV 2023)'.
        runs: How many runs a figure is of, as the paper says it.
        dataset: What they were measured on.
        figures: As the paper prints them, ``{metric: text}``.
        note: What keeps a figure from being what the paper says; empty if nothing does.
        epoch: The epoch after which they were measured; None for the last one.
    """

    paper: str
    runs: str
    dataset: str
    figures: dict[str, str]
    note: str = ''
    epoch: int | None = None

    @property
    def short(self) -> str:
        """The paper without conference and year."""
        return self.paper.partition(' (')[0]


@dataclass(frozen=True)
class IndexEntry:
    """The entry of a config in the metafile of its folder.

    Attributes:
        parameters, flops: Exact numbers, for one image of ``size``; None if not given.
        size: Height and width.
        length: 'Iterations' or 'Epochs', and how many; None if not given.
        batch: The recipe's total batch.
        quotations: The papers' figures.
    """

    parameters: int | None = None
    flops: int | None = None
    size: tuple[int, ...] = ()
    length: tuple[str, int] | None = None
    batch: int | None = None
    quotations: tuple[Quotation, ...] = ()

    @property
    def results(self) -> dict[str, str]:
        """The papers' final figures by metric; another paper than LaPE's is named, as in '80.00; 80.1 (DPN)'."""
        found: dict[str, list[str]] = {}
        for one in self.quotations:
            for metric, text in one.figures.items() if one.epoch is None else ():
                found.setdefault(metric, []).append(text if one.short == 'LaPE' else f'{text} ({one.short})')
        return {metric: '; '.join(texts) for metric, texts in found.items()}


@dataclass(frozen=True)
class PaperModel:
    """A model as the paper's tables name it.

    Attributes:
        name: 'Seg-T-Mask/16', 'ViT-Adapter-Ti', 'DeiT-S'; the config's name if its settings are unknown, or its model
            is none of the papers'.
        pretrained: 'DeiT-Ti', with a star if it was pretrained with LaPE, too; 'none' without a checkpoint, a question
            mark if the checkpoint was allowed to have another joining; of a model that has no name, the file's.
        method: 'Default', 'LaPE', ..., with '+ DPN'; a dash if the model has no name.
        plain: Whether it is the default PE without DPN: the baseline of the others of this name.
    """

    name: str
    pretrained: str = '–'
    method: str = '–'
    plain: bool = False

    @property
    def named(self) -> bool:
        """Whether the settings are known, and the papers have a name for the model."""
        return self.method != '–'


def index_entry(config: str, parameters: int | None = None) -> IndexEntry | None:
    """Return the entry of a config in the metafiles; None if there is none.

    Args:
        config: Its name or its file.
        parameters: The number that the trained model has, if it was counted. If it differs from the config's, the
            model is another one (other classes, another position embedding), which has no entry.
    """
    found = _index().get(Path(config).stem)
    return None if found and parameters and found.parameters not in (None, parameters) else found


@functools.cache
def _index() -> dict[str, IndexEntry]:
    found = {}
    for file in sorted((mim_root() / 'configs').rglob('metafile.yml')):
        # The base loader keeps numbers as they are printed: 40.660 has three decimals in the paper.
        content = yaml.load(file.read_text(encoding='utf-8'), yaml.BaseLoader)
        found |= {entry['Name']: _index_entry(entry) for entry in content.get('Models', ())}
    return found


def _index_entry(entry: dict) -> IndexEntry:
    facts = entry.get('Metadata', {})
    lengths = [(unit, int(facts[unit])) for unit in ('Iterations', 'Epochs') if unit in facts]
    return IndexEntry(
        *(int(facts[key]) if key in facts else None for key in ('Parameters', 'FLOPs')),
        tuple(int(side) for side in facts.get('Input Size', ())),
        lengths[0] if lengths else None,
        int(facts['Training Batch']) if 'Training Batch' in facts else None,
        tuple(map(_quotation, entry.get('Paper Results', ()))),
    )


def _quotation(result: dict) -> Quotation:
    figures = {METRICS[name]: value for name, value in result['Metrics'].items() if name in METRICS}
    epoch = int(result['Epoch']) if 'Epoch' in result else None
    return Quotation(result['Paper'], result['Runs'], result['Dataset'], figures, result.get('Note', ''), epoch)


def paper_model(name: str, identity: dict | None) -> PaperModel:
    """Return the paper's name of a model, from the settings that its runs recorded.

    Args:
        name: The name if the settings are unknown.
        identity: As `mmlape.runs.identity.read_identity` returns it.
    """
    identity = identity or {}
    model = (identity.get('settings') or {}).get('model') or {}
    backbone = model.get('backbone') or {}
    encoded = model if 'pe_type' in model else backbone  # DETR's encodings are not in its backbone
    if encoded is backbone and 'arch' not in backbone:
        return PaperModel(name, _file(backbone, identity) if model else '–')
    joining, patch_norm = encoded.get('pe_joining', 'default'), encoded.get('patch_norm', 'none')
    method = _position(encoded, joining)
    method += {'none': '', 'dual': ' + DPN'}.get(patch_norm, f' + {patch_norm} norm')
    family, scale = _backbone(backbone)
    pretrained, loads = 'none', identity.get('loads') or ()
    if any(key.startswith(('load_from', 'model.backbone.')) for key in loads):
        pretrained = f'{family}-{scale}'.removeprefix('-')
        if encoded is backbone or 'load_from' in loads:
            pretrained += '?' if _may_mismatch(backbone) else '*' if joining.startswith('lape') else ''
    return PaperModel(_model_name(model, backbone, family, scale), pretrained, method, method == 'Default')


def _file(backbone: dict, identity: dict) -> str:
    """Return the weights that a model without a name starts from: a file, or timm's name; 'none' without any."""
    vit = backbone.get('vit') or backbone
    start = vit.get('model_name', 'none') if vit.get('pretrained') else 'none'
    return (identity.get('checkpoint') or {}).get('name', start)


def _may_mismatch(backbone: dict) -> bool:
    given = backbone.get('init_cfg') or []
    return any(one.get('allow_joining_mismatch') for one in (given if isinstance(given, list) else [given]))


def _position(encoded: dict, joining: str) -> str:
    """Return the method: 'LaPE', 'Default, sincos2d' for another table than the family's own, 'RPE', 'LaPE + RPE'."""
    kind = _kind(encoded)
    own = _OWN_TABLES.get(kind, 'learnable')
    given = encoded.get('pe_type', 'rpe' if kind == 'SwinTransformer' else own)
    given = given if isinstance(given, list) else [given]
    names = [one.get('type') if isinstance(one, dict) else one for one in given]
    inside = [_INSIDE[name] for name in names if name in _INSIDE]
    tables = [name for name in names if name not in _INSIDE]
    if names == ['none']:
        return 'None'
    if not tables and joining == 'default':
        return ' + '.join(inside)
    parts = [JOININGS.get(joining, joining), *(name for name in tables if name != own)]
    return ' + '.join([', '.join(parts), *(inside if tables else ())])


def _kind(backbone: dict) -> str:
    return str(backbone.get('type', '')).rpartition('.')[2]


def _backbone(backbone: dict) -> tuple[str, str]:
    """Return family and size: ('DeiT', 'Ti'), ('ResNet', '50'); layers and width for an arch without a name."""
    arch, family = backbone.get('arch'), _FAMILIES.get(_kind(backbone), 'DeiT')
    if arch is None:
        return _kind(backbone), str(backbone.get('depth', ''))
    if isinstance(arch, dict):
        return (
            family or _compact_family(arch),
            f'{arch.get("num_layers") or arch.get("depths")}x{arch.get("embed_dims")}',
        )
    if not family:
        name = arch.replace('vit-lite', 'ViT-Lite').replace('cvt', 'CVT').replace('cct', 'CCT')
        return '', name
    size = arch.rpartition('-')[2]
    scale = _SCALES.get(size, size)
    return family, 'T' if (family, scale) == ('Swin', 'Ti') else scale


def _compact_family(arch: dict) -> str:
    if (arch.get('tokenizer') or {}).get('type') == 'conv':
        return 'CCT'
    return 'ViT-Lite' if arch.get('pooling') == 'cls_token' else 'CVT'


def _model_name(model: dict, backbone: dict, family: str, scale: str) -> str:
    decoder = model.get('decode_head') or {}
    head, patch = str(decoder.get('type', '')), backbone.get('patch_size', 16)
    name = f'{family}-{scale}'.removeprefix('-')
    if 'Adapter' in _kind(backbone):
        return f'ViT-Adapter-{scale}'
    if 'Segmenter' in head and family == 'DeiT':
        return f'Seg-{scale[0] if scale == "Ti" else scale}-Mask/{patch}'
    if head.endswith('FCNHead') and decoder.get('num_convs') == 0 and family == 'DeiT':
        return f'Linear ViT-{scale}/{patch}'
    kind = str(model.get('type', '')).rpartition('.')[2]
    if 'Classifier' in kind:
        return f'{name}{"-distill" if "Distilled" in kind else ""}'
    return f'{head.rpartition(".")[2] or kind} {name}'
