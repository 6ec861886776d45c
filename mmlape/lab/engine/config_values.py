"""The values of a configuration: how they differ from another's, and which file each one comes from."""

import ast
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlape.lab.engine.config import assignments, load_config, parse_options
from mmlape.lab.runs.identity import PREFIX_SCOPE, leaves
from mmlape.lab.studies.study_file import is_study, read_arm
from mmlape.mim import resolve_path

_ABSENT = '(absent)'


def config_values(cfg: Config) -> dict[str, Any]:
    """Return every value of a configuration by its dotted key, without the scope of a base ``mmlape::...``."""
    return {key: value for key, value in leaves(cfg.to_dict()) if (key.rpartition('.')[2], value) != PREFIX_SCOPE}


def differing_values(first: Config, second: Config) -> list[tuple[str, str, str]]:
    """Return key and both values, as text, where two configurations differ."""
    ours, theirs = ({key: repr(value) for key, value in config_values(cfg).items()} for cfg in (first, second))
    return [
        (key, ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def value_sources(path: str | Path, cfg_options: Sequence[str] | None = None) -> list[tuple[str, str, str]]:
    """Return key, value as text and source of every value.

    A file, relative to here, or '--cfg-options'. That is the nearest file that assigns the key,
    where a change has an effect, also if a base has an equal value.
    """
    cfg = load_config(path, list(cfg_options or ()))
    values = config_values(cfg)
    # what the file itself does not have is of the options, or follows from its data_root
    default = '--cfg-options' if cfg_options or is_study(path) else os.path.relpath(resolve_path(path))
    sources = dict.fromkeys(values, default)
    given = [*parse_options(list(cfg_options or ()))]
    if is_study(path):
        study, arm = read_arm(path)
        theirs = config_values(load_config(path))
        sources |= {
            key: study.file for key in values if theirs.get(key, _ABSENT) == values[key] and not _below(key, given)
        }
        path, given = arm.base, [*given, *arm.overrides]
    for key, (value, file) in _from_files(str(resolve_path(path))).items():
        if key in values and values[key] == value and not _below(key, given):
            sources[key] = file
    return [(key, repr(value), sources[key]) for key, value in values.items()]


def _below(key: str, others: Iterable[str]) -> bool:
    """Return whether a dotted key is one of the others, or below one."""
    return any(f'{key}.'.startswith(f'{other}.') for other in others)


def _from_files(file: str) -> dict[str, tuple[Any, str]]:
    """Return value and file of every value of a configuration file and its bases."""
    cfg = Config.fromfile(file)
    named = os.path.relpath(file)
    sources = {key: (value, named) for key, value in config_values(cfg).items()}
    assigned = assignments(Path(file))
    for base in Config._get_base_files(file):
        base_file, _ = Config._get_cfg_path(base, file)
        for key, (value, source) in _from_files(base_file).items():
            is_equal = key in sources and sources[key][0] == value
            if is_equal and not _assigns(assigned, key.split('.')):
                sources[key] = value, source
    return sources


def _assigns(assigned: dict[str, ast.expr], parts: Sequence[str]) -> bool:
    """Return whether a file assigns a key: as a keyword of nested dicts, or by an expression that holds it."""
    node = assigned.get(parts[0])
    for part in parts[1:]:
        if isinstance(node, ast.Dict):
            keys = [getattr(key, 'value', None) for key in node.keys]  # None of `**others`
            entries = dict(zip(keys, node.values, strict=True))
        elif isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'dict':
            entries = {entry.arg: entry.value for entry in node.keywords}
        else:
            break  # a list, which replaces that of a base, or what only running the file tells
        node = entries.get(part, entries.get(None))
    return node is not None
