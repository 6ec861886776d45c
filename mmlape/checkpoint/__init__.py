"""Checkpoints: read safely, recognised by layout, loaded exactly or refused with the reason.

What this offers is imported on first use, so that the provenance of a file is known without torch.
"""

from importlib import import_module

_LAZY = {
    'LoadReport': 'weights.load_report',
    'load_backbone': 'checkpoint.loading',
    'load_model': 'checkpoint.loading',
    'load_weights': 'checkpoint.loading',
    'read_checkpoint': 'weights.reading',
    'state_dict_of': 'weights.reading',
    'trust_checkpoints': 'weights.reading',
}
__all__ = list(_LAZY)


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'mmlape.{_LAZY[name]}'), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
