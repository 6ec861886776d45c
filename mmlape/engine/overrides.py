"""Distinguish a mistyped override from one that adds a key on purpose."""

import difflib
import inspect
import warnings
from collections.abc import Iterable
from typing import Any

from mmlape.errors import ConfigError

_RUNNER_EXTRAS = {
    'activation_checkpointing', 'compile', 'compile_backbone', 'data_fraction', 'data_fraction_seed', 'data_root',
    'distributed', 'efficient_conv_bn_eval', 'find_unused_parameters', 'load_fresh', 'load_strict',
    'model_wrapper_cfg', 'sync_bn', 'tta_model', 'tta_pipeline',
}  # fmt: skip
_LOADER_EXTRAS = {'dataset', 'num_batch_per_epoch', 'disable_subprocess_warning'}
_WRAPPER_EXTRAS = {'constructor', 'paramwise_cfg'}
_REGISTRIES = (
    'MODELS', 'DATASETS', 'TRANSFORMS', 'OPTIMIZERS', 'OPTIM_WRAPPERS', 'PARAM_SCHEDULERS', 'HOOKS', 'METRICS',
    'EVALUATOR', 'DATA_SAMPLERS', 'LOOPS', 'VISUALIZERS', 'VISBACKENDS', 'LOG_PROCESSORS', 'TASK_UTILS',
)  # fmt: skip


def check_override(cfg: dict, key: str) -> None:
    """Check that ``key`` changes an existing value, or adds one that is accepted there.

    A new part is accepted if the class that is built there, the runner or the data loader has an argument of that
    name. Where the accepted arguments are unknown, the last part may be new, with a warning, unless it resembles an
    existing one.

    Raises:
        ConfigError: A part does not exist; the message names it and similar ones.
    """
    parts = key.split('.')
    node: Any = cfg
    for depth, part in enumerate(parts):
        where = '.'.join(parts[:depth])
        children = _children(node)
        if children is None:
            raise ConfigError(f"--cfg-options {key}: '{where}' is the value {node!r} and has no keys")
        if part in children:
            node = children[part]
            continue
        if isinstance(node, list | tuple):
            raise ConfigError(f'--cfg-options {key}: {_unknown_key(where, part, children)}')
        _check_new(cfg, node, where, part, key, leaf=depth == len(parts) - 1)
        return


def _children(node: Any) -> dict[str, Any] | None:
    if isinstance(node, list | tuple):
        return {str(index): child for index, child in enumerate(node)}
    return dict(node.items()) if hasattr(node, 'items') else None


def _unknown_key(where: str, part: str, known: Iterable[str]) -> str:
    known = sorted(map(str, known))
    close = difflib.get_close_matches(part, known, n=3, cutoff=0.5)
    if not close and part.isdigit():
        return f"'{where}' has {len(known)} entries, numbered from 0"
    hint = f'did you mean {" or ".join(close)}?' if close else f'known keys are {", ".join(known)}'
    place = f"'{where}' has no '{part}'" if where else f"there is no '{part}'"
    return f'{place}: {hint}'


def _check_new(cfg: dict, node: dict, where: str, part: str, key: str, leaf: bool) -> None:
    accepted, complete = _accepted(cfg, node, where)
    if part in accepted:
        return
    known = {*accepted, *node}
    if complete or not leaf or difflib.get_close_matches(part, list(node), n=1, cutoff=0.75):
        raise ConfigError(f'--cfg-options {key}: {_unknown_key(where, part, known)}')
    warnings.warn(f'--cfg-options {key} adds a new key that nothing in the configuration had', stacklevel=2)


def _accepted(cfg: dict, node: dict, where: str) -> tuple[set[str], bool]:
    """Return the keys that are accepted at a place, and whether these are all."""
    if not where:
        from mmengine.runner import Runner

        return set(inspect.signature(Runner.__init__).parameters) | _RUNNER_EXTRAS, False
    if where.endswith('_dataloader'):
        from torch.utils.data import DataLoader

        return set(inspect.signature(DataLoader.__init__).parameters) | _LOADER_EXTRAS, True
    if 'type' not in node:
        return set(), False
    names, complete = _arguments(_find_class(node['type'], cfg.get('default_scope', 'mmengine')))
    return (names | _WRAPPER_EXTRAS if where == 'optim_wrapper' else names), complete


def _find_class(name: Any, scope: str) -> Any:
    if not isinstance(name, str):
        return name
    import mmengine.registry as registries

    for registry in (getattr(registries, known) for known in _REGISTRIES):
        with registry.switch_scope_and_registry(scope) as scoped:
            try:
                found = scoped.get(name)
            except ImportError:
                found = None
        if found is not None:
            return found
    return None


def _arguments(built: Any) -> tuple[set[str], bool]:
    """Return the named arguments of a class, through ``**kwargs`` up its bases, and whether these are all."""
    if not callable(built):
        return set(), False
    names: set[str] = {'type', '_scope_'}
    makers = (
        [base.__init__ for base in built.__mro__ if '__init__' in vars(base)] if inspect.isclass(built) else [built]
    )
    for maker in makers:
        try:
            parameters = inspect.signature(maker).parameters.values()
        except (TypeError, ValueError):
            return names, False
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {'self'}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return names, True
    return names, False
