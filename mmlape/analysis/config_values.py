"""The values of a configuration: how they differ from another's, and which file each one comes from."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlape.engine.config import load_config
from mmlape.engine.study_file import is_study, read_arm
from mmlape.mim import resolve_path
from mmlape.runs.identity import PREFIX_SCOPE, leaves

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
    """Return key, value as text and source of every value: a file, relative to here, or '--cfg-options'.

    A value that a file leaves as a base of it has it comes from that base.
    """
    cfg = load_config(path, list(cfg_options or ()))
    values = config_values(cfg)
    sources = dict.fromkeys(values, '--cfg-options')
    if is_study(path):
        study, arm = read_arm(path)
        theirs = config_values(load_config(path))
        sources |= {key: study.file for key in values if key in theirs and theirs[key] == values[key]}
        path = arm.base
    for key, (value, file) in _from_files(str(resolve_path(path))).items():
        if key in values and values[key] == value:
            sources[key] = file
    return [(key, repr(value), sources[key]) for key, value in values.items()]


def _from_files(file: str) -> dict[str, tuple[Any, str]]:
    """Return value and file of every value of a configuration file and its bases."""
    cfg = Config.fromfile(file)
    named = os.path.relpath(file)
    sources = {key: (value, named) for key, value in config_values(cfg).items()}
    for base in Config._get_base_files(file):
        base_file, _ = Config._get_cfg_path(base, file)
        for key, (value, source) in _from_files(base_file).items():
            if key in sources and sources[key][0] == value:
                sources[key] = value, source
    return sources
