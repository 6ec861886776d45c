"""A study and its arms, as their file describes them."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmlape.errors import ConfigError


def check_arm_name(name: str) -> None:
    """Check that an arm may have a name, which is also a folder's and a part of patterns; ConfigError if not."""
    if not re.fullmatch(r'[\w+][\w.+-]*', name):
        raise ConfigError(
            f"arm '{name}': a name consists of letters, digits, '_', '-', '+' and '.', and does not "
            "begin with '-' or '.'"
        )


@dataclass(frozen=True)
class StudyArm:
    """An arm of a study file on one base."""

    name: str  # unique in the file
    title: str  # what it is, for a reader
    base: str  # its config
    base_name: str  # the base's name in the study; empty if it has a single one
    base_title: str  # the base's title
    # changes of the base by dotted keys, as ``--cfg-options`` has them
    overrides: Mapping[str, Any]
    # values of the base's ``{{$NAME:default}}``, which MMEngine takes from the environment
    variables: Mapping[str, str]
    figure: str | None = None  # the paper's figure as it is printed; None if the study has none
    # the arm that the figure is the difference from; None if it is a score
    relative_to: str | None = None
    # further figures of the paper by metric, as printed
    also: Mapping[str, str] = field(default_factory=dict)
    # values of the keys that an extension reads
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyFile:
    """A study as its file describes it."""

    file: str  # as the user named it: a path, or ``mmlape::studies/NAME.yml``
    title: str  # what is compared
    arms: tuple[StudyArm, ...]  # all arms, row by row: an arm of the file on each of its bases
    seeds: tuple[int, ...] = ()  # what every arm is trained with; empty if the file has none
    paper: str = ''  # whose the figures are, such as 'DPN (TMLR 2023)'; empty without figures
    table: str = ''  # which table or section of the paper
    runs: str = 'not stated'  # how many runs a figure is of, as the paper says it
    # what they were measured on; without a paper, what the arms are trained on
    dataset: str = ''
    metric: str = 'top-1'  # what they are, as metafiles name it: 'top-1'
    time: str = ''  # what all runs take, and on what; empty if it is not known

    @property
    def processes(self) -> list[int]:
        """The numbers of processes that the configs of the arms are made for, by their names."""
        found = (re.search(r'_(\d+)xb\d', arm.base) for arm in self.arms)
        return sorted({int(match[1]) for match in found if match})

    @property
    def data(self) -> str:
        """The data that the arms are trained on: the dataset of a study of ours, else as the configs' names end."""
        if self.dataset and not self.paper:
            return self.dataset
        return ', '.join(dict.fromkeys(arm.base.rpartition('_')[2] for arm in self.arms))

    @property
    def source(self) -> str:
        """The paper and its table, or 'ours'."""
        return ', '.join(filter(None, [self.paper, self.table])) or 'ours'

    @property
    def name(self) -> str:
        """The name of the file."""
        return Path(self.file).stem

    def reference(self, arm: StudyArm) -> str:
        """Return what commands take as the config of an arm."""
        return f'{self.file}:{arm.name}'

    def config_file(self, arm: StudyArm) -> str:
        """Return the file that an arm would be as a config: beside the study, named after both."""
        return str(Path(self.file).with_name(f'{self.name}-{arm.name}.py'))

    def choose(self, names: Iterable[str]) -> list[StudyArm]:
        """Return arms by name, in this order, or raise ConfigError."""
        by_name = {arm.name: arm for arm in self.arms}
        for name in names:
            if name not in by_name:
                raise ConfigError(f"{self.file} has no arm '{name}'; {similar_to(name, by_name)}")
        return [by_name[name] for name in names]


def similar_to(name: str, others: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar ones, else all that there are."""
    names = [str(one) for one in others]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(names)}'
