"""The settings of a run: the part of its configuration that decides results, without what may differ by machine.

docs/experiments.md lists for users what counts. The train batch, the precision and the bytes of checkpoints are
compared separately.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from mmlape.datasets.fraction import data_fraction
from mmlape.registry import HOOKS

COUNTED = (
    'default_scope', 'model', 'data_preprocessor', 'train_dataloader', 'val_dataloader', 'val_evaluator', 'train_cfg',
    'val_cfg', 'optim_wrapper', 'param_scheduler', 'load_fresh', 'load_strict', 'sync_bn',
    'efficient_conv_bn_eval',
)  # fmt: skip
"""Keys at the top of a configuration that count."""
IGNORED = {
    'num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor', 'collect_device', 'collect_dir',
    'outfile_prefix', 'with_cp', 'checkpoint', 'teacher_checkpoint', 'use_deterministic_algorithms',
}  # fmt: skip
"""Keys below them that do not count, wherever they are."""
_PREFIX_SCOPE = ('_scope_', 'mmlape')
_PRECISIONS = {'OptimWrapper': None, 'AmpOptimWrapper': 'fp16', 'BFloat16OptimWrapper': 'bf16'}


def precision(cfg: dict) -> str | None:
    """Return 'bf16' or 'fp16' if the optimiser's wrapper trains in mixed precision, else None."""
    wrapper = cfg.get('optim_wrapper') or {}
    if 'bfloat16' in str(wrapper.get('dtype')):
        return 'bf16'
    return _PRECISIONS.get(_class_name(wrapper))


def settings(cfg: dict) -> dict:
    """Return the part of a configuration that decides results, as JSON values."""
    cfg = dict(cfg.items())
    named = [value for key, value in leaves(cfg) if key.split('.')[-1] == 'data_root' and isinstance(value, str)]
    roots = sorted({root.rstrip('/') for root in named} - {''}, key=len, reverse=True)
    kept = {key: cfg[key] for key in COUNTED if cfg.get(key) is not None}
    fraction = data_fraction(cfg)
    if fraction:
        kept['data_fraction'] = dict(share=str(fraction.share), seed=fraction.seed)
    scale = cfg.get('auto_scale_lr') or {}
    if scale.get('enable'):
        kept['auto_scale_lr'] = dict(base_batch_size=scale.get('base_batch_size'))
    if (cfg.get('randomness') or {}).get('diff_rank_seed') is False:
        kept['randomness'] = dict(diff_rank_seed=False)
    custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if _changes_results(hook)]
    kept = _plain(dict(kept, custom_hooks=custom_hooks) if custom_hooks else kept, roots)
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


def _changes_results(hook: dict) -> bool:
    return getattr(HOOKS.get(_class_name(hook)), 'changes_results', True)


def _plain(node: Any, roots: list[str]) -> Any:
    """Return ``node`` as JSON values, without what may differ and with data roots as ``DATA``."""
    if isinstance(node, dict):
        # MMEngine adds this scope to a base read as `mmlape::...`; mmlape/registry.py says why it has no meaning
        kept = {key: child for key, child in node.items() if key not in IGNORED and (key, child) != _PREFIX_SCOPE}
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
    """Return the SHA-256 of a value's JSON; the order of keys does not count."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def named_differences(mine: dict, other: dict) -> list[str]:
    """Return the differences of two results of :func:`settings`, such as 'train_cfg.max_iters 3 -> 4'."""
    old, new = dict(leaves(mine)), dict(leaves(other))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key, ...) != new.get(key, ...)]
    return [f'{key} {_shown(old.get(key, ...))} -> {_shown(new.get(key, ...))}' for key in keys]


def _shown(value: Any) -> str:
    text = 'nothing' if value is ... else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f'{text[:57]}...'


def leaves(node: Any, key: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of nested dicts, lists and tuples; an empty one is a value."""
    if not isinstance(node, dict | list | tuple) or not node:
        yield key, node
        return
    for name, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield from leaves(child, f'{key}.{name}' if key else str(name))
