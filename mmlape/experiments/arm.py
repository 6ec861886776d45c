"""An arm of a comparison: a config with its changes, on all of its training images or on fractions of them."""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmlape.datasets.fraction import label, parse_fraction
from mmlape.engine.study_file import is_study, read_study
from mmlape.errors import ConfigError


@dataclass(frozen=True)
class Arm:
    """One config of a comparison, with changes: a file, ``mmlape::folder/name``, or a study's arm, ``FILE.yml:ARM``.

    Its name is that of its folder, and of its rows in tables.
    """

    name: str
    config: str
    cfg_options: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: str | Path, cfg_options: Sequence[str] = ()) -> 'Arm':
        """Build an arm named after its config."""
        name = re.split(r'/|::', str(config))[-1].removesuffix('.py')
        return cls(name, str(config), tuple(cfg_options))

    @classmethod
    def parse(cls, values: Sequence[str], cfg_options: Sequence[str] = ()) -> 'Arm':
        """Build an arm from the values of ``--arm``, NAME CONFIG [KEY=VALUE ...]; ConfigError for others."""
        if len(values) < 2 or any('=' not in value for value in values[2:]):
            raise ConfigError(f'--arm {" ".join(values)}: expected NAME CONFIG [KEY=VALUE ...]')
        return cls(values[0], values[1], (*cfg_options, *values[2:]))


def read_arms(paths: Sequence[str], cfg_options: Sequence[str] = ()) -> tuple[list[Arm], tuple[int, ...], str]:
    """Return the arms of studies and configs, the studies' seeds, and the default work dir.

    Raises:
        ConfigError: A study is wrong, or two have different seeds.
    """
    arms, seeds, names = [], {}, set()
    for path in paths:
        if not is_study(path):
            arms.append(Arm.of(path, cfg_options))
            names.add('')
            continue
        study = read_study(path)
        arms += [Arm(arm.name, study.reference(arm), tuple(cfg_options)) for arm in study.arms]
        seeds[study.seeds] = study.file
        names.add(study.name)
    if len(seeds) > 1:
        raise ConfigError(f'--seeds: {" and ".join(seeds.values())} have different ones, so give them')
    return arms, next(iter(seeds), ()), f'work_dirs/{names.pop()}'.rstrip('/') if len(names) == 1 else 'work_dirs'


def choose(arms: Sequence[Arm], patterns: Sequence[str]) -> list[Arm]:
    """Return the arms whose names fit one of the patterns, as shells write them; ConfigError if none fits one."""
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(arm.name, pattern) for arm in arms):
            raise ConfigError(f"--arms: no arm '{pattern}'; there are: {', '.join(arm.name for arm in arms)}")
    return [arm for arm in arms if any(fnmatch.fnmatchcase(arm.name, pattern) for pattern in patterns)]


def on_fractions(arms: Sequence[Arm], fractions: Sequence[str]) -> list[Arm]:
    """Return an arm for each fraction of each arm's training images, 'NAME+1of16'; on all, it keeps its name."""
    shares = [parse_fraction(text) for text in fractions]
    return [
        replace(arm, name=f'{arm.name}+{label(share)}', cfg_options=(*arm.cfg_options, f'data_fraction={share}'))
        if share < 1
        else arm
        for arm in arms
        for share in shares
    ]
