"""An arm of a comparison: a config with its changes, on all of its training images or on fractions of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmlape.datasets.fraction import label, parse_fraction
from mmlape.errors import ConfigError


@dataclass(frozen=True)
class Arm:
    """One config of a comparison.

    Args:
        name: Names its folder, and its rows in tables.
        config: A file, or ``mmlape::folder/name``.
        cfg_options: ``key=value`` changes of the config.
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
        """Build an arm from the values of ``--arm``: NAME CONFIG [KEY=VALUE ...].

        Raises:
            ConfigError: The values are not of this form.
        """
        if len(values) < 2 or any('=' not in value for value in values[2:]):
            raise ConfigError(f'--arm {" ".join(values)}: expected NAME CONFIG [KEY=VALUE ...]')
        return cls(values[0], values[1], (*cfg_options, *values[2:]))


def on_fractions(arms: Sequence[Arm], fractions: Sequence[str]) -> list[Arm]:
    """Return an arm for each fraction of each arm's training images, 'NAME+1of16'; on all of them it keeps its name.

    Raises:
        ConfigError: A fraction is none.
    """
    shares = [parse_fraction(text) for text in fractions]
    return [
        replace(arm, name=f'{arm.name}+{label(share)}', cfg_options=(*arm.cfg_options, f'data_fraction={share}'))
        if share < 1
        else arm
        for arm in arms
        for share in shares
    ]
