"""Position encodings, and how the absolute ones are joined; what a model has of both follows from three arguments."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import mmlape.models.position.absolute
import mmlape.models.position.beit
import mmlape.models.position.conditional
import mmlape.models.position.fire
import mmlape.models.position.irpe
import mmlape.models.position.lookhere
import mmlape.models.position.pape
import mmlape.models.position.relative_bias
import mmlape.models.position.relative_vectors
import mmlape.models.position.rotary  # noqa: F401  (these register kinds)
from mmlape.errors import ConfigError, require_choice
from mmlape.kinds import JOININGS, POSITION_ENCODINGS
from mmlape.models.position.base import (
    AbsolutePosition,
    AttentionPosition,
    AttentionSlot,
    LayerPosition,
    attaching,
    position_parameters,
)
from mmlape.models.position.joining import (
    PE_NORMS,
    AttentionInput,
    Joining,
    Stream,
    add_rows,
    build_pe_norm,
    same_parameters,
)

PositionType = str | dict | Sequence[str | dict]
"""A name, a dict with ``type`` and arguments, or a list of those: at most one absolute kind, any others."""

__all__ = [
    'PE_NORMS',
    'AbsolutePosition',
    'AttentionInput',
    'AttentionPosition',
    'AttentionSlot',
    'Joining',
    'LayerPosition',
    'NormPlaces',
    'Position',
    'PositionType',
    'Stream',
    'add_rows',
    'attaching',
    'build_pe_norm',
    'has_norms_in',
    'joinings',
    'joinings_of',
    'kinds',
    'position_parameters',
    'resolve_position',
]


@dataclass(frozen=True)
class Position:
    """The position encodings of a model."""

    absolute: AbsolutePosition | None  # the absolute kind; None without one
    inside: tuple[dict, ...]  # arguments of the kinds inside attention, of which each layer builds its own
    joining: Joining  # how the absolute PE meets the tokens
    pe_norm: str | None = None  # a key of ``PE_NORMS``; None where nothing norms an absolute PE
    normed: bool = False  # whether the kinds inside attention are in their normed form
    # arguments of the kinds between layers, of which each layer before one builds its own
    between: tuple[dict, ...] = ()
    given: tuple[dict, ...] = ()  # arguments of all kinds, without ``training_arguments``
    staged: bool = False  # whether the grid changes between layers

    def pe_norm_of(self, layer: int) -> str | None:
        """Return what norms the PE in a layer, counted from 0: a key of ``PE_NORMS``, or None."""
        return self.pe_norm if self.joining.norms_layer(layer, self.staged) else None

    def options(self) -> dict:
        """Return ``pe_type``, ``pe_joining`` and, where one norms an absolute PE, ``pe_norm``."""
        names = [cfg['type'] if len(cfg) == 1 else cfg for cfg in self.given]
        pe_type = names if len(names) > 1 else (names or ['none'])[0]
        norm = {} if self.pe_norm is None else {'pe_norm': self.pe_norm}
        return {'pe_type': pe_type, 'pe_joining': self.joining.name, **norm}

    def ambiguous_options(self, places: 'NormPlaces') -> dict[str, list[str]]:
        """Return, for ``pe_joining`` and ``pe_norm``, the values that leave the same keys in a checkpoint."""
        if self.absolute is None:
            return {}
        norms = same_parameters(self.pe_norm) if self.pe_norm else []
        per_layer = self.joining.table_per_layer
        names = joinings_of(places, per_layer)
        if 'identity' in norms:  # norms without parameters
            names += joinings_of(NormPlaces(), per_layer)
        return {'pe_joining': names, 'pe_norm': norms}

    def build_inside(self) -> tuple[AttentionPosition, ...]:
        """Build the kinds inside attention for one layer."""
        return tuple(_build(POSITION_ENCODINGS, cfg) for cfg in self.inside)

    def unfit_for_windows(self) -> list[str]:
        """Return the kinds inside attention that do not work in windows, each as ``pe_type`` has it."""
        return [
            repr(cfg['type'] if len(cfg) == 1 else cfg)
            for cfg, kind in zip(self.inside, self.build_inside(), strict=True)
            if not kind.windows
        ]

    def build_between(self) -> tuple[LayerPosition, ...]:
        """Build the kinds between layers for one layer, which need not be one that they follow."""
        return tuple(_build(POSITION_ENCODINGS, cfg) for cfg in self.between)


def kinds(base: type) -> list:
    """Build every registered kind that derives from ``base`` and needs no arguments, in the order of registration."""
    POSITION_ENCODINGS.import_from_location()
    built = []
    for name, kind in POSITION_ENCODINGS.module_dict.items():
        if issubclass(kind, base):
            with contextlib.suppress(ConfigError):
                built.append(_build(POSITION_ENCODINGS, name))
    return built


def joinings() -> dict[str, Joining]:
    """Build every registered joining, by name."""
    JOININGS.import_from_location()
    return {name: _build(JOININGS, name) for name in JOININGS.module_dict}


class NormPlaces(NamedTuple):
    """Where a model, or a file, keeps norms of the PE."""

    layers: tuple[bool, ...] = (False,)  # each layer
    last: bool | None = False  # beside the last norm; None where there is no such norm
    merging: bool | None = None  # between stages; None where no PE is merged
    staged: bool = False  # whether the grid changes between layers


def joinings_of(places: NormPlaces, per_layer: bool) -> list[str]:
    """Return the joinings that have norms of the PE in these places, and tables per layer or not.

    The most usual one comes first. Where none has exactly these, those that norm the PE at all are meant.
    """
    normed = any(places.layers) or bool(places.last)
    near = {
        name: joining
        for name, joining in joinings().items()
        if (joining.with_norm, joining.table_per_layer) == (normed, per_layer)
    }
    exact = [name for name, joining in near.items() if has_norms_in(joining, places)]
    return exact or list(near)


def has_norms_in(joining: Joining, places: NormPlaces) -> bool:
    """Check whether a joining has norms of the PE in exactly these places."""
    layers = tuple(joining.norms_layer(number, places.staged) for number in range(len(places.layers)))
    merging = joining.with_norm and joining.merged_by_own_norm
    return (
        layers == places.layers and places.last in (None, joining.at_last_norm) and places.merging in (None, merging)
    )


def resolve_position(pe_type: PositionType, pe_joining: str, pe_norm: str, staged: bool = False) -> Position:
    """Look position encodings and their joining up.

    Args:
        pe_type: What the model has; 'none' for nothing.
        pe_joining: A name in ``JOININGS``.
        pe_norm: A key of ``PE_NORMS``.
        staged: Whether the model's grid changes between its layers.

    Raises:
        ConfigError: For an unknown name or argument, two absolute kinds, or a combination that has no meaning; the
            message has the choices.
    """
    cfgs = list(pe_type) if isinstance(pe_type, list | tuple) else [pe_type]
    cfgs = [dict(entry) if isinstance(entry, dict) else dict(type=entry) for entry in cfgs]
    cfgs = [cfg for cfg in cfgs if cfg.get('type') != 'none' or len(cfgs) > 1]
    built = [_build(POSITION_ENCODINGS, cfg, 'pe_type', ('none',)) for cfg in cfgs]
    joining = _build(JOININGS, pe_joining, 'pe_joining')
    require_choice('pe_norm', pe_norm, PE_NORMS)
    absolute = [kind for kind in built if isinstance(kind, AbsolutePosition)]
    if len(absolute) > 1:
        names = ', '.join(kind.name for kind in absolute)
        raise ConfigError(f'pe_type={pe_type!r} has {len(absolute)} absolute kinds ({names}): leave one')
    inside = [(cfg, kind) for cfg, kind in zip(cfgs, built) if isinstance(kind, AttentionPosition)]
    between = tuple(cfg for cfg, kind in zip(cfgs, built) if isinstance(kind, LayerPosition))
    table = absolute[0] if absolute else None
    _check_joining(joining, table, [kind for _, kind in inside], pe_type)
    with_norm = joining.with_norm and table is not None
    if pe_norm != 'layernorm' and not with_norm:
        normed = ' and '.join(name for name, other in joinings().items() if other.with_norm)
        raise ConfigError(
            f'pe_norm={pe_norm!r} would have no effect with pe_type={pe_type!r} and '
            f'pe_joining={pe_joining!r}: only {normed} norm an absolute PE; leave pe_norm at its '
            'default, layernorm'
        )
    normed_inside = table is None and pe_joining != 'default'
    pe_norm = pe_norm if with_norm else None
    cfgs = tuple(
        {key: value for key, value in cfg.items() if key not in kind.training_arguments}
        for cfg, kind in zip(cfgs, built)
    )
    inside_attention = tuple(cfg for cfg, _ in inside)
    return Position(table, inside_attention, joining, pe_norm, normed_inside, between, cfgs, staged)


def _check_joining(joining: Joining, table: AbsolutePosition | None, inside: list, pe_type: PositionType) -> None:
    def fits(other: Joining) -> bool:
        if table is not None:
            return other.fits(table)
        return other.name == 'default' or (bool(inside) and all(other.name in kind.normed_joinings for kind in inside))

    if not fits(joining):
        fitting = ', '.join(name for name, other in joinings().items() if fits(other))
        raise ConfigError(
            f'pe_joining={joining.name!r} cannot join pe_type={pe_type!r}; choose pe_joining from: {fitting}'
        )


def _build(registry, cfg: str | dict, key: str = '', more: tuple[str, ...] = ()):
    """Build a registered class and give it the name that it is registered under."""
    cfg = dict(type=cfg) if isinstance(cfg, str) else dict(cfg)
    name = cfg.pop('type', None)
    known = registry.get(name) if isinstance(name, str) else None
    if known is None:
        choices = ', '.join([*registry.module_dict, *more])
        raise ConfigError(f'unknown {key}={name!r}; choose one of: {choices}')
    try:
        built = known(**cfg)
    except TypeError as error:
        raise ConfigError(f'{key}={name!r}: {error}') from error
    built.name = name
    return built
