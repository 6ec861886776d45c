"""Configurations: found by path or by ``mmlape::`` name, changed by checked overrides, re-rooted to other data."""

import ast
import difflib
import traceback
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction

import mmlape
from mmlape.engine.overrides import check_override
from mmlape.errors import ConfigError

PREFIX = 'mmlape::'


def config_root() -> Path:
    """The folder of this package's configurations: beside the package in a checkout, inside it when installed."""
    package = Path(mmlape.__file__).resolve().parent
    for root in (package / '.mim' / 'configs', package.parent / 'configs'):
        if root.is_dir():
            return root
    raise ConfigError(f'the configurations of mmlape are neither in {package}/.mim nor beside {package}: reinstall it')


def load_config(path: str | Path, cfg_options: list[str] | dict[str, Any] | None = None) -> Config:
    """Reads a configuration and applies overrides to it.

    Args:
        path: A file, or ``mmlape::folder/name`` (with or without ``.py``) for one that comes with the package.
        cfg_options: ``key=value`` strings, or a dict of dotted keys. ``data_root`` re-roots every data set and takes
            over the classes found there; it goes first, whatever its place, so that other overrides win.

    Raises:
        ConfigError: If the file is missing (the message lists similar names) or broken (file and line), or if an
            override names something that the configuration does not have (the message lists similar keys).
        DataError: If ``data_root`` is not a directory, or holds no classes that can be read.
    """
    file = resolve_path(path)
    cfg = _read(file)
    options = parse_options(cfg_options)
    data_root = options.pop('data_root', None)
    if data_root is not None:
        from mmlape.datasets.checks import retarget_data

        retarget_data(cfg, str(data_root))
    for key, value in options.items():
        check_override(cfg, key)
        try:
            cfg.merge_from_dict({key: value})
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ConfigError(f'--cfg-options {key}={value}: {error.args[0] if error.args else error}') from error
    return cfg


def config_name(cfg: Config) -> str:
    """The name of a configuration's file, without folder and ending."""
    return Path(cfg.filename).stem if cfg.filename else 'config'


def resolve_path(path: str | Path) -> Path | str:
    """The file that a path or a ``mmlape::`` name means; other packages' names are left to MMEngine.

    Raises:
        ConfigError: If there is no such file.
    """
    text = str(path)
    if '::' in text and not text.startswith(PREFIX):
        return text
    if text.startswith(PREFIX):
        root = config_root()
        file = root / text.removeprefix(PREFIX)
        file = file if file.suffix in ('.py', '.json', '.yaml', '.yml') else file.with_name(file.name + '.py')
    else:
        file, root = Path(text), None
    if file.is_file():
        return file
    what = 'is a directory' if file.is_dir() else 'does not exist'
    raise ConfigError(f'config {path} {what}{_similar_files(file, root)}')


def _similar_files(file: Path, root: Path | None) -> str:
    candidates: dict[str, str] = {}
    if root is None:
        candidates |= {near.stem: str(near) for near in file.parent.glob('*.py')} if file.parent.is_dir() else {}
    try:
        known = config_root()
    except ConfigError:
        known = None
    if known is not None:
        for near in sorted(known.glob('*/*.py')):
            if near.parent.parent == known and near.parent.name != '_base_':
                candidates.setdefault(near.stem, PREFIX + str(near.relative_to(known)))
    close = difflib.get_close_matches(file.stem, candidates, n=3, cutoff=0.5)
    return f': did you mean {" or ".join(candidates[name] for name in close)}?' if close else ''


def _read(file: Path | str) -> Config:
    try:
        return Config.fromfile(file)
    except SyntaxError as error:
        raise ConfigError(f'{file} does not parse: {_syntax_place(file, error)}') from error
    except Exception as error:
        raise ConfigError(f'{file} cannot be read: {_place(file, error)}{type(error).__name__}: {error}') from error


def _syntax_place(file: Path | str, error: SyntaxError) -> str:
    """MMEngine words the error without its line's place, and the mistake may lie in a base: so look again."""
    for candidate in [Path(file), *_bases(Path(file))]:
        try:
            ast.parse(candidate.read_text(encoding='utf-8'))
        except SyntaxError as found:
            line = (found.text or '').strip()
            return f'{candidate}:{found.lineno}: {found.msg}' + (f": '{line}'" if line else '')
        except OSError:
            continue
    return str(error)


def _bases(file: Path) -> list[Path]:
    try:
        tree = ast.parse(file.read_text(encoding='utf-8'))
    except (SyntaxError, OSError):
        return []
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_base_':
            try:
                named = ast.literal_eval(node.value)
            except ValueError:
                return []
            files = [file.parent / name for name in ([named] if isinstance(named, str) else named) if '::' not in name]
            return files + [base for direct in files for base in _bases(direct)]
    return []


def _place(file: Path | str, error: Exception) -> str:
    """``line N: `` where the configuration's own code raised; MMEngine compiles it without a file name."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == '']
    return f'line {lines[-1]}: ' if lines else ''


def parse_options(options: list[str] | dict[str, Any] | None) -> dict[str, Any]:
    """Turns ``key=value`` strings into values: Python literals, ``a,b`` lists, else the text as it stands.

    Raises:
        ConfigError: If a string has no ``=``, or its brackets do not match.
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
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    if text.lower() in ('true', 'false'):
        return text.lower() == 'true'
    if not any(mark in text for mark in ',[('):
        return text
    try:
        return DictAction._parse_iterable(text)
    except AssertionError as error:
        raise ConfigError(f"--cfg-options '{option}': {error}") from error
