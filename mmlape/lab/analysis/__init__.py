"""Looks inside models and runs: position correlation by layer, the stem in pixel space, gradient norms, curves."""

from mmlape.lazy import attributes

_HOOKS = {'DrawingsHook': 'evaluation_page', 'EvaluationPageHook': 'evaluation_page'}
"""Hooks that configs name, by the module that has them."""
__all__ = ['DrawingsHook', 'EvaluationPageHook']
__getattr__, __dir__ = attributes(__name__, _HOOKS)
