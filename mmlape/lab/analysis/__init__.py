"""Looks inside models and runs: position correlation by layer, the stem in pixel space, gradient norms, curves."""

from importlib import import_module

_HOOKS = {'EvaluationPageHook': 'evaluation_page'}
"""Hooks that configs name, by the module that has them."""

__all__ = list(_HOOKS)


def __getattr__(name: str):
    if name not in _HOOKS:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'{__name__}.{_HOOKS[name]}'), name)
