"""What a model is called in the papers' tables, from the settings of a run: 'DeiT-Ti', 'LaPE + RPE'.

Backbones, position encodings and joinings have their name as ``paper_name``; a class without one is
called by its own name, and so is one that inherits: a subclass is another model.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from mmlape.kinds import BACKBONES, JOININGS, POSITION_ENCODINGS
from mmlape.lab.extension import PaperModel
from mmlape.models.position import AbsolutePosition

_SIZES = {'tiny': 'Ti', 'small': 'S', 'base': 'B', 'large': 'L'}


def paper_model(
    name: str, settings: Mapping[str, Any], loads: Sequence[str], weights: str | None
) -> PaperModel | None:
    """Return the paper's name of a model, see `mmlape.lab.extension.Extension.paper_model`."""
    model = settings.get('model') or {}
    backbone = model.get('backbone') or {}
    encoded = model if 'pe_type' in model else backbone  # DETR's encodings are not in its backbone
    if encoded is backbone and not _has_name(backbone):
        return None if weights else _by_weights(name, backbone)
    joining, patch_norm = encoded.get('pe_joining', 'default'), encoded.get('patch_norm', 'none')
    method = _method(encoded, joining)
    method += {'none': '', 'dual': ' + DPN'}.get(patch_norm, f' + {patch_norm} norm')
    family, size = _family_and_size(backbone)
    pretrained = 'none'
    if any(key.startswith(('load_from', 'model.backbone.')) for key in loads):
        pretrained = _joined(family, size)
        if encoded is backbone or 'load_from' in loads:
            given = backbone.get('init_cfg') or []
            inits = given if isinstance(given, list) else [given]
            may_mismatch = any(init.get('allow_joining_mismatch') for init in inits)
            if may_mismatch:
                pretrained += '?'
            elif joining.startswith('lape'):
                pretrained += '*'
    return PaperModel(_model_name(model, backbone, family, size), pretrained, method, method == 'Default')


def _has_name(backbone: dict) -> bool:
    """Return whether a backbone has a name.

    Ours and users' but timm's, which are called by their weights.
    """
    known = _model_class(backbone)
    return 'arch' in backbone if known is None else vars(known).get('paper_name', '') is not None


def _by_weights(name: str, backbone: dict) -> PaperModel | None:
    """Return a model of timm, which is called by the weights that it starts from; None for others."""
    vit = backbone.get('vit') or backbone
    if not vit.get('pretrained'):
        return None
    return PaperModel(name, vit.get('model_name', 'none'))


def _class_name(cfg: dict) -> str:
    return str(cfg.get('type', '')).rpartition('.')[2]


def _model_class(cfg: dict) -> type | None:
    """Return the class of a config, if this package or a user's module that is imported has it."""
    return BACKBONES.get(_class_name(cfg))


def _paper_name(cls: type | None, name: str) -> Any:
    """Return a class's own ``paper_name``, else its name."""
    return name if cls is None else vars(cls).get('paper_name', cls.__name__)


def _method(encoded: dict, joining: str) -> str:
    """Return the method: 'LaPE', 'Default, sincos2d' for another table than the family's own, 'RPE', 'LaPE + RPE'."""
    for registry in (JOININGS, POSITION_ENCODINGS):
        registry.import_from_location()
    known = _model_class(encoded)
    argument = inspect.signature(known.__init__).parameters.get('pe_type') if known else None  # type: ignore[misc]
    usual = _types('learnable' if argument is None else argument.default)
    names = _types(encoded['pe_type']) if 'pe_type' in encoded else usual
    if names == ['none']:
        return 'None'
    kinds = {name: POSITION_ENCODINGS.module_dict.get(name) for name in (*names, *usual)}
    is_table = {name: kind is None or issubclass(kind, AbsolutePosition) for name, kind in kinds.items()}
    usual_table = next((name for name in usual if is_table[name]), 'learnable')
    inside = [_paper_name(kinds[name], name) for name in names if not is_table[name]]
    tables = [name for name in names if is_table[name]]
    if not tables and joining == 'default':
        return ' + '.join(inside)
    parts = [_paper_name(JOININGS.module_dict.get(joining), joining)]
    parts += [_paper_name(kinds[name], name) for name in tables if name != usual_table]
    return ' + '.join([', '.join(parts), *(inside if tables else ())])


def _types(pe_type: Any) -> list[str]:
    given = pe_type if isinstance(pe_type, list | tuple) else [pe_type]
    return [entry['type'] if isinstance(entry, dict) else entry for entry in given]


def _family_and_size(backbone: dict) -> tuple[str, str]:
    """Return family and size: ('DeiT', 'Ti'), ('ResNet', '50').

    Layers and width for an arch without a name.
    """
    arch, known = backbone.get('arch'), _model_class(backbone)
    family = _paper_name(known, _class_name(backbone))
    if callable(family):
        family = family(arch)
    if arch is None:
        return family, str(backbone.get('depth', ''))
    if isinstance(arch, dict):
        return family, f'{arch.get("num_layers") or arch.get("depths")}x{arch.get("embed_dims")}'
    size = arch.rpartition('-')[2]
    return family, (_SIZES | getattr(known, 'paper_sizes', {})).get(size, size)


def _joined(family: str, size: str) -> str:
    return f'{family}-{size}' if size else family


def _model_name(model: dict, backbone: dict, family: str, size: str) -> str:
    decoder, adapter = (model.get('decode_head') or {}, getattr(_model_class(backbone), 'paper_adapter', None))
    head, patch = str(decoder.get('type', '')), backbone.get('patch_size', 16)
    if adapter:
        return _joined(adapter, size)
    if 'Segmenter' in head and family == 'DeiT':
        return f'Seg-{size[0] if size == "Ti" else size}-Mask/{patch}'
    if head.endswith('FCNHead') and decoder.get('num_convs') == 0 and family == 'DeiT':
        return f'Linear ViT-{size}/{patch}'
    name = _class_name(model)
    if 'Classifier' in name:
        return f'{_joined(family, size)}{"-distill" if "Distilled" in name else ""}'
    return f'{head.rpartition(".")[2] or name} {_joined(family, size)}'
