"""Which keys a configuration may have where no constructor refuses others.

What has a ``type`` is built, and `mmlape.lab.runs.failures` says then what was meant. MMEngine leaves the other
keys alone that it does not know, so that a misspelt one changes nothing.
"""

import difflib
import functools
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from mmengine.config import Config
from mmengine.utils.dl_utils import set_multi_processing

from mmlape.errors import ConfigError, listed

_RUNNER_EXTRAS = {
    'activation_checkpointing', 'cache_features', 'compile', 'compile_backbone', 'custom_imports', 'data_fraction',
    'data_fraction_seed', 'data_root', 'distributed', 'efficient_conv_bn_eval', 'find_unused_parameters',
    'load_fresh', 'load_strict', 'mini_data_options', 'model_wrapper_cfg', 'own_keys', 'sync_bn', 'tta_model',
    'tta_pipeline',
}  # fmt: skip
_ALIKE = 0.9
"""How much an unknown name resembles a known one that was meant, as `difflib` measures it."""
SIZES = ('crop_size', 'img_size')
"""Variables that an export and the cost of a model read; training has their values in other places."""


def check_keys(cfg: Config, source: str | None = None) -> None:
    """Check the keys that no constructor will: at the top of a configuration, and of dicts without a ``type``.

    A variable of the file is no mistake, unless nothing reads it and its name resembles a key of
    the runner. Dotted keys that the configuration lists as ``own_keys`` are not checked. ``source``
    is where the mistake is, for messages; default: the file.

    Raises:
        ConfigError: A key is unknown; the message names it and similar ones.
    """
    for key, reason in _unknown(cfg):
        if key not in (cfg.get('own_keys') or ()):
            raise ConfigError(f'{source or cfg.filename}: {reason} (if it is meant: own_keys=[{key!r}])')


def _unknown(cfg: Config) -> Iterator[tuple[str, str]]:
    """Yield each unknown key, dotted, and what is wrong with it."""
    for key in cfg:
        if _is_typo(key) and _is_unread(key, cfg.text):
            yield key, _unknown_key('', key, runner_keys())
    for where, names in untyped_keys().items():
        node: Any = cfg
        for part in where.split('.'):
            node = node.get(part) if hasattr(node, 'items') else None
        # several optimisers have a constructor, and names of their own
        if hasattr(node, 'items') and 'type' not in node and 'constructor' not in node:
            for key in node:
                if key not in names:
                    yield f'{where}.{key}', _unknown_key(where, str(key), names)


@functools.cache
def untyped_keys() -> dict[str, frozenset[str]]:
    """Return the keys that MMEngine reads of the dicts that need no ``type``, by their place."""
    from mmengine import runner
    from mmengine.optim import OptimWrapper
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_
    from torch.utils.data import DataLoader

    loops = (runner.EpochBasedTrainLoop.__init__, runner.IterBasedTrainLoop.__init__)
    loader = _parameters(DataLoader.__init__) | {'num_batch_per_epoch', 'disable_subprocess_warning', '_scope_'}
    keys = {
        'auto_scale_lr': {'base_batch_size', 'enable'},
        'env_cfg': {'cudnn_benchmark', 'dist_cfg', 'mp_cfg', 'resource_limit'},
        'env_cfg.mp_cfg': _parameters(set_multi_processing),
        'log_processor': _parameters(runner.LogProcessor.__init__),
        'randomness': _parameters(runner.Runner.set_randomness),
        'train_cfg': _parameters(*loops) | {'by_epoch'},
        'val_cfg': _parameters(runner.ValLoop.__init__),
        'test_cfg': _parameters(runner.TestLoop.__init__),
        'optim_wrapper': _parameters(OptimWrapper.__init__) | {'paramwise_cfg'},
        'optim_wrapper.clip_grad': _parameters(clip_grad_norm_, clip_grad_value_),
        **{f'{split}_dataloader': loader for split in ('train', 'val', 'test')},
    }
    return {where: frozenset(names) for where, names in keys.items()}


def _parameters(*functions: Any) -> set[str]:
    names = {name for function in functions for name in inspect.signature(function).parameters}
    return names - {'self', 'runner', 'dataloader'}


def check_override(cfg: dict, key: str, source: str = '--cfg-options') -> None:
    """Check that a dotted key begins with one that is read, and that resembles no other.

    ``source`` is where the key is given, for messages.

    Raises:
        ConfigError: It does not; the message names similar keys, or the places that have the value.
    """
    name, *rest = key.split('.')
    if name in cfg:
        _require_read(cfg, name, rest, source)
    elif name not in runner_keys() and (rest or _is_typo(name)):
        raise ConfigError(f'{source} {key}: {_unknown_key("", name, {*runner_keys(), *cfg})}')


def _require_read(cfg: dict, name: str, rest: list[str], source: str) -> None:
    """Raise ConfigError if a key is a variable of the file, whose value was used when the file was read."""
    if name in runner_keys() or name in (cfg.get('own_keys') or ()):
        return
    value = cfg[name]
    read = {key: cfg[key] for key in cfg if key in runner_keys()}
    places = [
        where
        for where, child in _iter_nodes(read, '')
        if child is value or (child == value and type(child) is type(value))
    ]
    of_its_name = [where for where in places if where.rpartition('.')[2] == name]
    if name in SIZES and not of_its_name:
        return
    hint = [f'{".".join([where, *rest])}=...' for where in of_its_name or places]
    where = f'change {listed(hint, 4)}' if hint else 'change what is built from it'
    raise ConfigError(
        f"{source} {'.'.join([name, *rest])}: '{name}' is a variable of the config file, whose value was "
        f'used when the file was read; now nothing reads it: {where} (if your own code does: '
        f'own_keys=[{name!r}])'
    )


def _iter_nodes(node: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield every value in a configuration with its place."""
    if where:
        yield where, node
    if isinstance(node, list | tuple):
        node = dict(enumerate(node))
    for key, child in node.items() if hasattr(node, 'items') else ():
        yield from _iter_nodes(child, f'{where}.{key}' if where else str(key))


def _is_typo(key: str) -> bool:
    """Check whether a key at the top is none that is read, but resembles one."""
    return key not in runner_keys() and bool(difflib.get_close_matches(key, runner_keys(), cutoff=_ALIKE))


def _is_unread(key: str, text: str) -> bool:
    """Return whether the text of a configuration and its bases assigns a name, and never uses it."""
    assigned = re.findall(rf'^\s*[\'"]?{re.escape(key)}[\'"]?\s*[=:]', text, re.MULTILINE)
    return bool(assigned) and len(assigned) == len(re.findall(rf'\b{re.escape(key)}\b', text))


def _unknown_key(where: str, part: str, keys: Iterable[str]) -> str:
    """Say that a place has no such key, and which it has."""
    keys = sorted(map(str, keys))
    close = difflib.get_close_matches(part, keys, n=3, cutoff=0.5)
    hint = f'did you mean {" or ".join(close)}?' if close else f'known keys are {", ".join(keys)}'
    place = f"'{where}' has no '{part}'" if where else f"there is no '{part}'"
    return f'{place}: {hint}'


@functools.cache
def runner_keys() -> frozenset[str]:
    """Return the keys that MMEngine or this package reads at the top of a configuration."""
    return frozenset(runner_arguments() | _RUNNER_EXTRAS)


@functools.cache
def runner_arguments() -> frozenset[str]:
    """Return the keys of a configuration that MMEngine's runner takes as arguments."""
    from mmengine.runner import Runner

    return frozenset(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'}
