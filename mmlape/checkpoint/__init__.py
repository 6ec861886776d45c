"""Checkpoints: read safely, recognised by layout, loaded exactly or refused with the reason.

What this offers is imported on first use, so that the provenance of a file is known without torch.
"""

from importlib import import_module

_LAZY = {
    'LoadReport': 'load_report',
    'load_backbone': 'loading',
    'load_model': 'loading',
    'load_weights': 'loading',
    'read_checkpoint': 'reading',
    'state_dict_of': 'reading',
    'trust_checkpoints': 'reading',
}
__all__ = list(_LAZY)


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'{__name__}.{_LAZY[name]}'), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
