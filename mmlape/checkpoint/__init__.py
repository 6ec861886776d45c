"""Checkpoints: read safely, recognised by layout, loaded exactly or refused with the reason.

What this offers is imported on first use.
"""

from mmlape.lazy import attributes

_LAZY = {
    'LoadReport': 'checkpoint.exact_loading',
    'load_backbone': 'checkpoint.loading',
    'load_model': 'checkpoint.loading',
    'load_weights': 'checkpoint.loading',
    'read_checkpoint': 'checkpoint.opening',
    'state_dict_of': 'checkpoint.opening',
    'trust_checkpoints': 'checkpoint.opening',
}
__all__ = list(_LAZY)
__getattr__, __dir__ = attributes(__name__, _LAZY, 'mmlape')
