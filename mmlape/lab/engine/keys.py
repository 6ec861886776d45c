"""Which keys a configuration may have where no constructor refuses others.

What has a ``type`` is built, and `mmlape.lab.engine.building` says then what was meant. MMEngine leaves the other keys
alone that it does not know, so that a misspelt one changes nothing.
"""

import difflib
import functools
import importlib
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import mmengine.registry as registries
from mmengine.config import Config
from mmengine.utils.dl_utils import set_multi_processing

from mmlape.errors import ConfigError, listed
from mmlape.param_rules import PARAMWISE_KEYS

_RUNNER_EXTRAS = {
    'activation_checkpointing', 'compile', 'compile_backbone', 'custom_imports', 'data_fraction', 'data_fraction_seed',
    'data_root', 'distributed', 'efficient_conv_bn_eval', 'find_unused_parameters', 'load_fresh', 'load_strict',
    'mini_data_options', 'model_wrapper_cfg', 'own_keys', 'sync_bn', 'tta_model', 'tta_pipeline',
}  # fmt: skip
_ALIKE = 0.75
"""How much an unknown name resembles a known one that was meant, as `difflib` measures it."""
SIZES = ('crop_size', 'img_size')
"""Variables that an export and the cost of a model read; training has their values in other places."""
_REGISTRIES = (
    'MODELS', 'DATASETS', 'TRANSFORMS', 'OPTIMIZERS', 'OPTIM_WRAPPERS', 'PARAM_SCHEDULERS', 'HOOKS', 'METRICS',
    'EVALUATOR', 'DATA_SAMPLERS', 'LOOPS', 'VISUALIZERS', 'VISBACKENDS', 'LOG_PROCESSORS', 'TASK_UTILS', 'FUNCTIONS',
    'WEIGHT_INITIALIZERS', 'MODEL_WRAPPERS',
)  # fmt: skip


def check_keys(cfg: Config, source: str | None = None) -> None:
    """Check the keys that no constructor will: at the top of a configuration, and of dicts without a ``type``.

    A variable of the file is no mistake, unless nothing reads it and its name is a key of the
    runner but for one letter. Dotted keys that the configuration lists as ``own_keys`` are not
    checked. ``source`` is where the mistake is, for messages; default: the file.

    Raises:
        ConfigError: A key is unknown; the message names it and similar ones.
    """
    for key, reason in _unknown(cfg):
        if key not in (cfg.get('own_keys') or ()):
            raise ConfigError(f'{source or cfg.filename}: {reason} (if it is meant: own_keys=[{key!r}])')


def _unknown(cfg: Config) -> Iterator[tuple[str, str]]:
    """Yield each unknown key, dotted, and what is wrong with it."""
    known = runner_keys()
    for key in cfg:
        is_typo = key not in known and any(_one_letter_off(key, one) for one in known)
        if is_typo and _is_unread(key, cfg.text):
            yield key, _unknown_key('', key, known)
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
    """Check that a dotted key changes an existing value, or adds one that is accepted there.

    A new last part that the class which is built there does not name is warned of, and an error if it resembles a
    known one. ``source`` is where the key is given, for messages.

    Raises:
        ConfigError: A part does not exist; the message names it and similar ones.
    """
    parts, scope = key.split('.'), cfg.get('default_scope') or 'mmengine'
    _require_read(cfg, parts, source)
    node: Any = cfg
    for depth, part in enumerate(parts):
        where = '.'.join(parts[:depth])
        children = _children_of(node)
        if children is None:
            raise ConfigError(f"{source} {key}: '{where}' is the value {node!r} and has no keys")
        if part in children:
            node = children[part]
            continue
        if isinstance(node, list | tuple):
            raise ConfigError(f'{source} {key}: {_unknown_key(where, part, children)}')
        names = _accepted(scope, node, where)
        if part in names:
            return
        if depth < len(parts) - 1 or _close(part, {*names, *node}):
            raise ConfigError(f'{source} {key}: {_unknown_key(where, part, {*names, *node})}')
        warnings.warn(f'{source} {key} adds a new key that nothing in the configuration had', stacklevel=2)
        return


def _require_read(cfg: dict, parts: list[str], source: str) -> None:
    """Raise ConfigError if a key is a variable of the file, whose value was used when the file was read."""
    name, *rest = parts
    if name not in cfg or name in runner_keys() or name in (cfg.get('own_keys') or ()):
        return
    value = cfg[name]
    read = {key: cfg[key] for key in cfg if key in runner_keys()}
    places = [
        where
        for where, child in _iter_nodes(read, '')
        if child is value or (child == value and type(child) is type(value))
    ]
    named = [where for where in places if where.rpartition('.')[2] == name]
    if name in SIZES and not named:
        return
    hint = [f'{".".join([where, *rest])}=...' for where in named or places]
    where = f'change {listed(hint, 4)}' if hint else 'change what is built from it'
    raise ConfigError(
        f"{source} {'.'.join(parts)}: '{name}' is a variable of the config file, whose value was "
        f'used when the file was read; now nothing reads it: {where} (if your own code does: '
        f'own_keys=[{name!r}])'
    )


def _iter_nodes(node: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield every value in a configuration with its place."""
    if where:
        yield where, node
    for key, child in (_children_of(node) or {}).items():
        yield from _iter_nodes(child, f'{where}.{key}' if where else str(key))


def _close(key: str, names: Iterable[str], cutoff: float = _ALIKE) -> list[str]:
    return difflib.get_close_matches(key, list(names), n=3, cutoff=cutoff)


def _one_letter_off(name: str, key: str) -> bool:
    """Check whether one letter is missing, added or wrong in a name, or two neighbours have changed places."""
    shorter, longer = sorted((name, key), key=len)
    at = next((i for i, (a, b) in enumerate(zip(shorter, longer)) if a != b), len(shorter))
    if len(longer) > len(shorter):
        return longer[at + 1 :] == shorter[at:]
    swapped = shorter[at : at + 2][::-1] + shorter[at + 2 :]
    return longer[at + 1 :] == shorter[at + 1 :] or longer[at:] == swapped


def _is_unread(key: str, text: str) -> bool:
    """Return whether the text of a configuration and its bases assigns a name, and never uses it."""
    assigned = re.findall(rf'^\s*[\'"]?{re.escape(key)}[\'"]?\s*[=:]', text, re.MULTILINE)
    return bool(assigned) and len(assigned) == len(re.findall(rf'\b{re.escape(key)}\b', text))


def iter_dicts(node: Any, where: str) -> Iterator[tuple[str, dict]]:
    """Yield every dict in a configuration with its place."""
    children = _children_of(node)
    if where and hasattr(node, 'items'):
        yield where, children
    for key, child in (children or {}).items():
        yield from iter_dicts(child, f'{where}.{key}' if where else str(key))


def _children_of(node: Any) -> dict[str, Any] | None:
    """Return the entries of a dict, or of a list by their numbers; None of anything else."""
    if isinstance(node, list | tuple):
        return {str(index): child for index, child in enumerate(node)}
    return dict(node.items()) if hasattr(node, 'items') else None


def _unknown_key(where: str, part: str, keys: Iterable[str]) -> str:
    """Say that a place has no such key, and which it has."""
    keys = sorted(map(str, keys))
    close = difflib.get_close_matches(part, keys, n=3, cutoff=0.5)
    if not close and part.isdigit():
        return f"'{where}' has {len(keys)} entries, numbered from 0"
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


def _accepted(scope: str, node: dict, where: str) -> set[str]:
    """Return the keys that are known to be accepted at a place."""
    if not where:
        return set(runner_keys())
    names = set(untyped_keys().get(where, PARAMWISE_KEYS if where == 'optim_wrapper.paramwise_cfg' else ()))
    return names.union(*(arguments_of(built) for built in find_classes(node.get('type'), scope)))


def find_classes(name: Any, scope: str) -> tuple[Any, ...]:
    """Return what a type may stand for, in any registry.

    None is among it if a package cannot be imported.
    """
    if not isinstance(name, str):
        return () if name is None else (name,)
    own_name = name.rpartition('.')[2]
    registered = []
    for known in _REGISTRIES:
        root = getattr(registries, known)
        for registry in (root, *root.children.values()):
            registered.append(registry.module_dict.get(own_name))
    return _find_classes(name, scope, tuple(registered))


@functools.cache
def _find_classes(name: str, scope: str, registered: tuple[Any, ...]) -> tuple[Any, ...]:
    """Find the classes of a name once, as long as the same ones are registered by it.

    That spares 0.2 s a config.
    """
    classes = {}
    try:
        importlib.import_module(f'{scope}.registry')
        with registries.DefaultScope.overwrite_default_scope(scope):
            for registry in (getattr(registries, known) for known in _REGISTRIES):
                built = _registered(registry.children.get(scope, registry), name)
                if built is not None:
                    classes[id(built)] = built
    except (ImportError, AssertionError):  # MM packages assert each other's versions
        return (*classes.values(), None)
    return tuple(classes.values())


def _registered(registry: registries.Registry, name: str) -> Any:
    """Return what `Registry.get` does, or None.

    For a name that is registered nowhere, MMEngine searches all of Python's path for a module of
    that name. A name without a dot can be none that defines a class.
    """
    if '.' in name or type(registry) is not registries.Registry:
        return registry.get(name)
    registry.import_from_location()
    while registry is not None:
        if name in registry.module_dict:
            return registry.module_dict[name]
        registry = registry.parent
    return None


@functools.cache
def arguments_of(built: Any) -> frozenset[str]:
    """Return the named arguments of a class, with its bases' where it passes others on."""
    if not callable(built):
        return frozenset()
    constructors = [built]
    if inspect.isclass(built):
        namespaces = [vars(cls) for cls in built.__mro__]
        constructors = [attributes['__init__'] for attributes in namespaces if '__init__' in attributes]
    names = {'type', '_scope_'}
    for number, constructor in enumerate(constructors):
        try:
            parameters = inspect.signature(constructor).parameters.values()
        except (TypeError, ValueError):
            break
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names |= {one.name for one in parameters if one.kind in kinds} - {'self'}
        if not number and all(one.kind is not one.VAR_KEYWORD for one in parameters):
            break
    return frozenset(names)
