"""The part of a configuration that decides about a run's results, without what may differ from machine to machine.

Left out are places (work dir, data root, paths of checkpoints, whose bytes are compared apart), workers, logging,
activation checkpointing and this package's own hooks. The train batch and the precision are compared apart, too.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

_KEPT = (
    'default_scope',
    'model',
    'data_preprocessor',
    'train_dataloader',
    'val_dataloader',
    'val_evaluator',
    'train_cfg',
    'val_cfg',
    'optim_wrapper',
    'param_scheduler',
    'load_strict',
    'sync_bn',
    'efficient_conv_bn_eval',
)
_DROPPED = {
    'num_workers',
    'persistent_workers',
    'pin_memory',
    'prefetch_factor',
    'collect_device',
    'collect_dir',
    'outfile_prefix',
    'with_cp',
    'checkpoint',
    'teacher_checkpoint',
    'use_deterministic_algorithms',
}
_PREFIX_SCOPE = ('_scope_', 'mmlape')
_PRECISIONS = {'OptimWrapper': None, 'AmpOptimWrapper': 'fp16', 'BFloat16OptimWrapper': 'bf16'}


def precision(cfg: dict) -> str | None:
    """'bf16' or 'fp16' where the optimiser's wrapper trains in mixed precision, else None."""
    wrapper = cfg.get('optim_wrapper') or {}
    if 'bfloat16' in str(wrapper.get('dtype')):
        return 'bf16'
    return _PRECISIONS.get(_class_name(wrapper))


def settings(cfg: dict) -> dict:
    """The part of a configuration that decides about results, as JSON has it."""
    cfg = dict(cfg.items())
    roots = sorted({root.rstrip('/') for root in _data_roots(cfg)} - {''}, key=len, reverse=True)
    kept = {key: cfg[key] for key in _KEPT if cfg.get(key) is not None}
    scale = cfg.get('auto_scale_lr') or {}
    if scale.get('enable'):
        kept['auto_scale_lr'] = dict(base_batch_size=scale.get('base_batch_size'))
    foreign = [hook for hook in cfg.get('custom_hooks') or [] if not _is_observer(hook)]
    kept = _plain(dict(kept, custom_hooks=foreign) if foreign else kept, roots)
    kept.get('train_dataloader', {}).pop('batch_size', None)
    wrapper = kept.get('optim_wrapper', {})
    if _class_name(wrapper) in _PRECISIONS:
        for key in ('type', 'dtype', 'loss_scale'):
            wrapper.pop(key, None)
    if wrapper.get('accumulative_counts') == 1:
        del wrapper['accumulative_counts']
    return kept


def _class_name(cfg: dict) -> str:
    kind = cfg.get('type', 'OptimWrapper')
    return getattr(kind, '__name__', str(kind)).rpartition('.')[2]


def _is_observer(hook: dict) -> bool:
    """This package's hooks write down, seed and stop, but change no weight."""
    from mmlape.engine import hooks

    return hasattr(hooks, _class_name(hook))


def _data_roots(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get('data_root'), str):
            yield node['data_root']
        for child in node.values():
            yield from _data_roots(child)
    elif isinstance(node, list | tuple):
        for child in node:
            yield from _data_roots(child)


def _plain(node: Any, roots: list[str]) -> Any:
    """``node`` as JSON would give it back, without what may differ and with data roots as ``DATA``."""
    if isinstance(node, dict):
        # MMEngine adds this scope to a base read as `mmlape::...`; mmlape/registry.py says why it has no meaning
        kept = {key: child for key, child in node.items() if key not in _DROPPED and (key, child) != _PREFIX_SCOPE}
        return {str(key): _plain(child, roots) for key, child in kept.items()}
    if isinstance(node, list | tuple):
        return [_plain(child, roots) for child in node]
    if isinstance(node, str):
        root = next((root for root in roots if node == root or node.startswith(f'{root}/')), None)
        return node if root is None else ('DATA' + node[len(root) :]).rstrip('/')
    if node is None or isinstance(node, bool | int | float):
        return node
    if callable(node):
        return f'{node.__module__}.{node.__qualname__}'
    return str(node)


def digest(content: Any) -> str:
    """SHA-256 of a value's JSON; the order of keys does not count."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def named_differences(mine: dict, other: dict) -> list[str]:
    """What differs between two results of :func:`settings`, a line a key: 'train_cfg.max_iters 3 -> 4'."""
    old, new = dict(_leaves(mine)), dict(_leaves(other))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key, ...) != new.get(key, ...)]
    return [f'{key} {_shown(old.get(key, ...))} -> {_shown(new.get(key, ...))}' for key in keys]


def _shown(value: Any) -> str:
    text = 'nothing' if value is ... else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f'{text[:57]}...'


def _leaves(node: Any, key: str = '') -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested dicts and lists."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else None
    if not children:
        yield key, node
        return
    for name, child in children:
        yield from _leaves(child, f'{key}.{name}' if key else str(name))
