"""Configurations: found by path or ``mmlape::`` name, changed by checked overrides, moved to another data root."""

import ast
import contextlib
import copy
import functools
import logging
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mmengine
from mmengine.config import Config, DictAction
from mmengine.registry import MODELS

from mmlape.errors import ConfigError
from mmlape.lab.config.known_keys import SIZES, check_keys, check_override
from mmlape.lab.datasets.fraction import data_fraction
from mmlape.lab.registry import SCOPE, class_of, with_names
from mmlape.lab.runs.identity import PREFIX_SCOPE, leaves
from mmlape.lab.studies import is_study, read_arm
from mmlape.openmmlab.mim import PREFIX, adapt_mmengine, did_you_mean, mim_root, resolve_path

adapt_mmengine()
_ABSENT = '(absent)'

# for each base like mmdet::_base_/... MMEngine reads all metafiles of the package, which takes 0.15
# s: once is enough
mmengine.config.utils.load = functools.cache(mmengine.config.utils.load)


def load_config(path: str | Path, cfg_options: list[str] | dict[str, Any] | None = None) -> Config:
    """Read a configuration and apply overrides to it.

    Args:
        path: A file, or ``mmlape::folder/name`` (with or without ``.py``) for one that comes with
            the package; or an arm of a study, ``FILE.yml:ARM``.
        cfg_options: ``key=value`` strings, or a dict of dotted keys. ``data_root`` moves every
            dataset and sets the classes found there; it is always applied first, so that other
            overrides win.

    Raises:
        ConfigError: The file is missing (the message lists similar names) or broken (it names file
            and line), or an override names an unknown key or type (it lists similar ones), or
            ``data_fraction`` is none.
        DataError: ``data_root`` is not a directory, or holds no readable classes.
    """
    cfg = _read_arm(path) if is_study(path) else _read(resolve_path(path))
    check_keys(cfg)
    options = parse_options(cfg_options)
    apply_options(cfg, options)
    if options:  # their values may be types, or have keys of their own
        check_keys(cfg, '--cfg-options')
    data_fraction(cfg)  # raises if it is none
    return cfg


def apply_options(cfg: Config, options: dict[str, Any], source: str = '--cfg-options') -> None:
    """Apply overrides by dotted keys to a configuration, in place, ``data_root`` first.

    Raises:
        ConfigError: A key is unknown, or its value does not fit there.
        DataError: See `load_config`.
    """
    options = dict(options)
    data_root = options.pop('data_root', None)
    if data_root is not None:
        from mmlape.lab.datasets.retarget import retarget_data

        retarget_data(cfg, str(data_root))
    # sizes last: they may be changed once all places that had their values are
    for key, value in sorted(options.items(), key=lambda option: option[0] in SIZES):
        check_override(cfg, key, source)
        try:
            cfg.merge_from_dict({key: value})
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ConfigError(f'{source} {key}={value}: {error.args[0] if error.args else error}') from error


def config_name(cfg: Config) -> str:
    """Return the name of a configuration's file without folder and suffix."""
    return Path(cfg.filename).stem if cfg.filename else 'config'


def _read(file: Path) -> Config:
    try:
        roots = [*_data_roots(file)]
        cfg = _without_imports(Config.fromfile(file))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f'{file} cannot be read: {_place(error)}{type(error).__name__}: {error}') from error
    _move_data(cfg, roots)
    return cfg


def _without_imports(cfg: Config) -> Config:
    """Return a configuration that imports its types with their names, as one that names them."""
    imported = getattr(cfg, '_imported_names', ())
    if imported:
        values = {key: value for key, value in cfg.items() if key not in imported}
        if values.get('default_scope') is None:  # which says the task of a model
            bases = getattr(class_of(values.get('model'), None, 'MODELS'), '__mro__', ())
            scopes = [base.__module__.partition('.')[0] for base in bases]
            values['default_scope'] = next((one for one in scopes if one in MODELS.children and one != SCOPE), None)
        cfg = Config(values, cfg_text=cfg.text, filename=cfg.filename)
    name_types(cfg)
    return cfg


def name_types(cfg: Config) -> None:
    """Replace each class that is a type of a configuration by its name, in place.

    A configuration is compared, stored in checkpoints and read by others as text.
    """
    for key, value in list(cfg.items()):
        named = with_names(value, cfg.get('default_scope'))
        if named is not value:
            cfg[key] = named


def _assigned(file: Path, name: str) -> Any:
    """Return the literal that a configuration written in Python assigns to a variable; None if it is no literal.

    Raises:
        ConfigError: The file does not parse.
    """
    try:
        tree = ast.parse(file.read_bytes() if file.suffix == '.py' else '')
    except SyntaxError as error:
        line = f": '{error.text.strip()}'" if error.text else ''
        raise ConfigError(f'{file}:{error.lineno}: {error.msg}{line}') from error
    found = None
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, 'id', '') == name for target in node.targets):
            with contextlib.suppress(ValueError):
                found = ast.literal_eval(node.value)
    return found


def _move_data(cfg: Config, roots: list[str]) -> None:
    """Let a ``data_root`` that a file sets do what it does on the command line.

    The paths of its bases, which were built when these were read, are below another one of the roots.
    """
    new = cfg.get('data_root')
    others = [root for root in dict.fromkeys(roots) if root != new]
    if not others or not isinstance(new, str):
        return
    from mmlape.lab.datasets.retarget import has_data_below, retarget_data

    for old in others:
        if has_data_below(cfg, old):
            cfg.data_root = old
            retarget_data(cfg, new)


def _data_roots(file: Path, above: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield what a configuration and its bases assign to ``data_root``.

    Raises:
        ConfigError: One of them does not parse, is not there, or is based on itself.
    """
    if not file.is_file():
        raise ConfigError(f'{above[-1]}: _base_ names {file}, which does not exist{did_you_mean(file)}')
    chain, this = [path.resolve() for path in above], file.resolve()
    if this in chain:
        circle = ' -> '.join(path.name for path in [*chain[chain.index(this) :], this])
        raise ConfigError(f'{above[-1]}: _base_ leads back to itself: {circle}')
    root = _assigned(file, 'data_root')
    if isinstance(root, str):
        yield root
    for base in Config._get_base_files(str(file)) if file.suffix == '.py' else ():
        if '{{' not in base:  # which MMEngine fills in when it reads the file
            ours = mim_root() / 'configs' / base.removeprefix(PREFIX)
            found = ours if base.startswith(PREFIX) else Path(Config._get_cfg_path(base, str(file))[0])
            yield from _data_roots(found, (*above, file))


def _read_arm(path: str | Path) -> Config:
    """Read the base of an arm and apply its overrides.

    The file is named as the arm's own config would be. MMEngine takes the values of ``{{$NAME:default}}`` from the
    environment.
    """
    arm = read_arm(path)
    try:
        logging.disable(logging.INFO)  # of a line for each variable
        with patch.dict(os.environ, arm.variables):
            base = _read(resolve_path(arm.base))
    except ConfigError as error:
        raise ConfigError(f'{arm.study.file}: arm {arm.name}: base: {error}') from error
    finally:
        logging.disable(logging.NOTSET)
    apply_options(base, copy.deepcopy(dict(arm.overrides)), f'{arm.study.file}: arm {arm.name}: overrides:')
    return Config(base._cfg_dict, cfg_text=base.text, filename=arm.config_file)


def _place(error: Exception) -> str:
    """Return ``FILE:LINE: `` if a configuration's own code raised the error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    inside = Path(mmengine.__file__).parent in Path(frame.filename).parents
    return '' if inside or not frame.filename.endswith('.py') else f'{frame.filename}:{frame.lineno}: '


def parse_options(options: list[str] | dict[str, Any] | None) -> dict[str, Any]:
    """Parse ``key=value`` strings: Python literals, ``a,b`` lists, or else the text itself.

    Spaces between words stay, as in a path.
    """
    if options is None or isinstance(options, dict):
        return dict(options or {})
    parsed = {}
    for option in options:
        key, equals, text = option.partition('=')
        if not equals or not key.strip():
            raise ConfigError(f"--cfg-options takes key=value pairs, got '{option}'")
        parsed[key.strip()] = _value(option, text)
    return parsed


def _value(option: str, text: str) -> Any:
    try:
        return ast.literal_eval(_DictCalls().visit(ast.parse(text.strip(), mode='eval')))
    except (ValueError, SyntaxError):
        pass
    if text.lower() in ('true', 'false'):
        return text.lower() == 'true'
    if ',' not in text and not text.lstrip().startswith(('[', '(')):
        return text
    try:
        marked = re.sub(r'(?<=[^\s,(\[]) +(?=[^\s,)\]])', lambda spaces: _SPACE * len(spaces[0]), text)
        return _with_spaces(DictAction._parse_iterable(marked))
    except (AssertionError, RecursionError) as error:
        reason = error if isinstance(error, AssertionError) else 'not a Python literal'
        raise ConfigError(f"--cfg-options '{option}': {reason}") from error


_SPACE = '\0'
"""For a space between words while MMEngine parses a list, where it leaves out all spaces."""


def _with_spaces(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_with_spaces, value))
    return value.replace(_SPACE, ' ') if isinstance(value, str) else value


class _DictCalls(ast.NodeTransformer):
    """Replaces ``dict(key=value)``, as configurations have it, by a literal."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        has_names_only = not node.args and all(entry.arg for entry in node.keywords)
        if getattr(node.func, 'id', '') != 'dict' or not has_names_only:
            return node
        return ast.Dict([ast.Constant(entry.arg) for entry in node.keywords], [entry.value for entry in node.keywords])


def differing_values(first: Config, second: Config) -> list[tuple[str, str, str]]:
    """Return key and both values, as text, where two configurations differ but for the scope of a ``mmlape::...``."""
    ours, theirs = (
        {key: repr(value) for key, value in leaves(cfg.to_dict()) if (key.rpartition('.')[2], value) != PREFIX_SCOPE}
        for cfg in (first, second)
    )
    return [
        (key, ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]
