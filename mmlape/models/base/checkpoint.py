r"""What the checkpoint files of a backbone look like, and how they fit a model: an object that the backbone names.

    class MyBackbone(BaseBackbone):
        checkpoint_adapter = CheckpointAdapter(signs=(r'stem\.0\.weight', r'stages\.0\.attn\.qkv\.'))

An adapter has no state. Methods get the class of the backbone (``model_class``) where there is no model yet,
else the model. The configuration of a file's model is what the file records, or a candidate that has its names and
shapes; candidates are filtered by width and depth before one is built, on the meta device.
"""

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from inspect import signature as parameters_of
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

import mmlape.admitted  # noqa: F401  (what the gate lets through)
from mmlape.checkpoint import gate
from mmlape.checkpoint.exact_loading import summary_of_resized
from mmlape.checkpoint.key_maps import Layout, Target, Weights, with_batch_axis
from mmlape.checkpoint.loading import LoadOptions, LoadReport, load_pretrained
from mmlape.checkpoint.metadata import ambiguity, arguments_in, lasting_arguments, mismatch
from mmlape.console.log import log
from mmlape.errors import CheckpointError, ConfigError, MMLaPEError
from mmlape.kinds import BACKBONES
from mmlape.models.base.backbone import changed_arguments, parameters
from mmlape.models.base.fitting import (
    TensorNames,
    Tokens,
    fit_pe_norms,
    fit_table,
    norm_place,
    read_table,
    require_kind,
    resize_inside,
    resized_table,
)
from mmlape.models.grid import Grid
from mmlape.models.named_layers import ACTIVATIONS, NORMS
from mmlape.models.position import has_norms_in, joinings


def recorded_config(model: nn.Module) -> dict[str, Any]:
    """Return the configuration of a backbone: ``type``, ``arch``, and arguments that are not their defaults.

    Raises:
        ConfigError: If the constructor has not registered its arguments.
    """
    return {'type': f'mmlape.{type(model).__name__}', **lasting_arguments(changed_arguments(model))}


DERIVED = ('relative_position_index',)
"""Ends of the names of tensors that a model computes from its arguments, and that not every file has."""

Signature = frozenset[tuple[str, tuple[int, ...]]]
Size = tuple[int | None, int | None]
"""The width of the first layer's tokens and the number of layers, as far as they are known."""


class Match(NamedTuple):
    """The configuration of a file's model."""

    name: str  # of the model; '' for one without
    config: dict[str, Any]  # ``type`` and arguments, for the grid of the file's position encoding
    # on the meta device, with the file's names and shapes; None where the file records the configuration
    model: nn.Module | None


def signature(tensors: Mapping[str, Tensor]) -> Signature:
    """Return names and shapes of tensors, but for what a model computes itself."""
    return frozenset((name, tuple(value.shape)) for name, value in tensors.items() if not name.endswith(DERIVED))


def class_of(config: Mapping[str, Any]) -> type | None:
    """Return the class of a backbone's configuration; None if it is not known."""
    return BACKBONES.get(str(config.get('type')).rpartition('.')[2])


def size_of(config: Mapping[str, Any]) -> Size:
    """Return the size that a configuration says, without building the model."""
    model_class = class_of(config)
    parameter = parameters_of(model_class).parameters.get('arch') if model_class else None
    if parameter is None:
        return None, None
    arch = config.get('arch', parameter.default)
    arch = model_class.archs.get(arch, {}) if isinstance(arch, str) else arch
    depths = arch.get('depths')
    return arch.get('embed_dims'), sum(depths) if depths else arch.get('num_layers')


def build(config: Mapping[str, Any]) -> nn.Module | None:
    """Build a backbone on the meta device; None if its class is unknown or refuses an argument."""
    model_class = class_of(config)
    options = {key: value for key, value in config.items() if key not in ('type', 'init_cfg')}
    try:
        with torch.device('meta'):
            return model_class(**options) if model_class else None
    except (MMLaPEError, TypeError, ValueError):
        return None


UNTOLD = (
    'type',
    'arch',
    'img_size',
    'patch_size',
    'in_channels',
    'window_size',
    'out_indices',
    'patch_padding',
    'interpolate_mode',
    'init_cfg',
)
"""What configurations say beside the arguments that every layout must have a place for, or refuse."""


def recorded_in(model_class: type, weights: Weights, config_key: str) -> dict[str, Any]:
    """Return the configuration that a file records, or that a run has stored in it; empty if there is none."""
    config = weights.recorded.get('config')
    of_model = class_of(config) if isinstance(config, Mapping) else None
    if of_model and issubclass(of_model, model_class):
        return lasting_arguments(config)
    config = arguments_in(weights.config, config_key, model_class.__name__)
    # OpenMMLab has other backbones of these names
    is_other = model_class.__module__.startswith('mmlape.') and not str(config.get('type')).startswith('mmlape.')
    return {} if is_other else config


def is_of(model: nn.Module, weights: Weights, tables: list[str]) -> bool:
    """Check whether a file has the names and shapes of a model, also if it lacks a table that is never stored."""
    stored = weights.tensors | {name: with_batch_axis(weights.tensors[name]) for name in tables}
    of_model = model.state_dict()
    if not tables and model.pe_names and model.position.absolute.unstored:
        of_model = {name: value for name, value in of_model.items() if name not in model.pe_names}
    return signature(of_model) == signature(stored)


def grid_of_file(model: nn.Module, weights: Weights, names: TensorNames) -> Grid | None:
    """Return the grid of a file's position encodings in such a model; None if nothing tells it."""
    if weights.grid:
        return weights.grid
    for name in model.pe_names:
        if name in weights.tensors:
            table = with_batch_axis(weights.tensors[name])
            return read_table(model, name, table, [model.table_tokens()], None, weights.path).grid
    attn = names.attention(weights)
    encodings = model.all_layers[0].attention.encodings if model.position.inside else ()
    for encoding in encodings:
        if encoding.has_grid and not encoding.slot.window and encoding.found_in(attn):
            return encoding.infer_grid(attn, model.grid)
    return None


def admitted(values: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """Return what a file says of its model, if a model may be built of it."""
    known = (*NORMS, *ACTIVATIONS)
    return gate.admit(values, f'checkpoint {weights.path}', known=known)


def shapes(weights: Weights, names: TensorNames) -> dict[str, Any]:
    """Return what describes a file of an unknown model: its norms, and the shapes of the first layer."""
    norms = [name for name, value in weights.tensors.items() if re.search(r'norm\w*\.\w+$', name)]
    kinds_of_norm = dict.fromkeys(re.sub(r'\.\d+\.', '.*.', name.rpartition('.')[0]) for name in norms)
    layers = names.layers(weights)
    first = (f'{name} {tuple(value.shape)}' for name, value in (layers[0] if layers else {}).items())
    return {'norms': ', '.join(kinds_of_norm) or 'none', 'first layer': ', '.join(first)}


def printable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record has, as a description shows it."""
    shown = {key: value for key, value in record.items() if key not in ('config', 'grid')}
    return shown | ({'pe grid': '{} x {}'.format(*record['grid'])} if 'grid' in record else {})


class CheckpointAdapter:
    """The files of a backbone: recognised, described, translated, and fitted to a model.

    Args:
        signs: Regular expressions that each match a key of the backbone's files, if they have one layout only. A file
            of other signs is of another backbone.
        parts: Of a model that also takes the files of a plain ViT, such as ViT-Adapter: beginnings of the names of
            what it has beside that, which is new over such files.
        with_parts: The layouts that have these parts.
        untold: Its arguments that leave no trace in a file, for a note.

    Attributes:
        public_layouts: How files are recognised, and translated to this package's names; the most special first.
        public_targets: The layouts that weights can be written in, beside this package's.
        names: The names of the tensors that belong to position encodings.
        assumed_arguments: Arguments that change what a model computes, but no name and no shape of its tensors, with
            the values that a file without a record is taken to mean. A model lists its own values in
            ``recorded_arguments``.
        config_key: The key of a configuration that holds such a model.
    """

    assumed_arguments: ClassVar[Mapping[str, Any]] = {}
    config_key: ClassVar[str] = 'backbone'
    public_layouts: ClassVar[tuple[Layout, ...]] = ()
    public_targets: ClassVar[Mapping[str, Target]] = {}
    names: ClassVar[TensorNames] = TensorNames()

    def __init__(
        self,
        signs: tuple[str, ...] = (),
        parts: tuple[str, ...] = (),
        with_parts: tuple[Layout, ...] = (),
        untold: str = '',
    ):
        self.signs, self.parts, self.with_parts, self.untold = signs, parts, with_parts, untold

    def has_parts(self, weights: Weights) -> bool:
        """Check whether a file has the parts of a model that also takes files without them."""
        return weights.layout in [layout.name for layout in self.with_parts]

    def layouts(self, model_class: type) -> tuple[Layout, ...]:
        """Return how files are recognised, and translated to this package's names; the most special layouts first."""
        return (Layout(model_class.__name__, self.signs),) if self.signs else self.public_layouts

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check whether translated weights are those of this backbone, not of another one with the same layouts."""
        return True

    def targets(self) -> dict[str, Target]:
        """Return the layouts that weights can be written in."""
        return {'mmlape': Target(wrapper='state_dict'), **self.public_targets}

    def tables(self, weights: Weights) -> list[str]:
        """Return the names of a file's tables of the absolute PE."""
        return self.names.tables(weights)

    def table_tokens(self, model: nn.Module | type, weights: Weights) -> list[Tokens]:
        """Return the tokens that a file's PE tables can have rows for, the usual ones for such a model first."""
        model_class = model if isinstance(model, type) else type(model)
        return [{name: 1 for name in model_class.prefix_tokens if name in weights.tensors}]

    def initialise(self, model: nn.Module) -> None:
        """Load the checkpoint of a model's ``init_cfg``, or let MMEngine do what else it says.

        Raises:
            CheckpointError: If the checkpoint does not fit the model.
            ConfigError: If ``init_cfg`` names an initialiser of MMEngine, which is not installed; if the constructor
                has not registered its arguments.
        """
        changed_arguments(model)
        if load_pretrained(model):
            return
        if model.is_init:
            log(f'init_weights of {type(model).__name__} has been called more than once.', logging.WARNING)
            return
        if model.init_cfg:
            try:
                from mmengine.model import initialize
            except ImportError as error:
                raise ConfigError(
                    f'init_cfg={model.init_cfg!r} names an initialiser of MMEngine, which does not import '
                    f'({error}): install mmengine, or initialise the model by torch.nn.init; '
                    "dict(type='Pretrained', checkpoint=FILE) needs none"
                ) from error
            initialize(model, model.init_cfg)
        for child in model.children():
            if hasattr(child, 'init_weights') and not getattr(child, 'is_init', False):
                child.init_weights()
        model.is_init = True

    # what files record of a model

    def record(self, model: nn.Module) -> dict[str, Any]:
        """Return what files record of a model: what no key tells, the PE's grid, and the complete configuration."""
        position, arch = model.position, getattr(model, 'arch', {})
        grid = {'grid': list(model.grid)} if position.absolute or position.inside else {}
        heads = {'num_heads': arch['num_heads']} if arch.get('num_heads') else {}
        config = {'config': recorded_config(model)} if hasattr(model, 'arguments') else {}
        return {**position.options(), **grid, **heads, **model.recorded_arguments, **config}

    def ambiguous_options(self, model: nn.Module) -> dict[str, list[str]]:
        """Return the arguments whose value no key tells, with the values that leave the keys of this model's."""
        attn = model.all_layers[0].attention if model.position.inside else None
        texts = [
            text
            for encoding in (attn.encodings if attn else ())
            for text in encoding.ambiguous_options(attn.state_dict(), encoding.slot.num_prefix)
        ]
        return {**model.position.ambiguous_options(model.norm_places()), 'pe_type': texts}

    # the configuration of a file's model

    def find(self, model_class: type, weights: Weights) -> Match | None:
        """Return the configuration of a file's model; None if nothing tells it.

        It is the one that the file records, or that of the first model that has a name whose tensors have these names
        and shapes.
        """
        weights = replace(weights, recorded=admitted(weights.recorded, weights))
        recorded = recorded_in(model_class, weights, self.config_key)
        if recorded:
            return Match('', admitted(recorded, weights), None)
        for other_grid in (False, True):  # AugReg's ViTs are DeiT's for larger images
            for name, config in self.candidates(model_class, weights):
                model = self.compare(config, weights, other_grid)
                if model is not None:
                    return Match(name, config, model)
        return None

    def candidates(self, model_class: type, weights: Weights) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and configuration of the models that have a name, with what a file and its layout tell."""
        known = parameters(model_class)
        described = {**weights.arguments, **weights.recorded}
        described = {key: value for key, value in described.items() if key in known}
        for name, options in (vars(model_class).get('model_names') or {}).items():
            # what an older file records may be another model's than the one of this name
            name = '' if weights.is_described else name
            yield name, {'type': f'mmlape.{model_class.__name__}', **options, **described}

    def size(self, weights: Weights) -> Size:
        """Return the width of the first layer's tokens and the number of layers."""
        layers = self.names.layers(weights)
        qkv = layers[0].get(f'{self.names.attn}qkv.weight') if layers else None
        return None if qkv is None else qkv.shape[1], len(layers) or None

    def compare(self, config: dict[str, Any], weights: Weights, other_grid: bool = False) -> nn.Module | None:
        """Return the model of a configuration if a file has its names and shapes.

        With ``other_grid`` the configuration becomes that for the grid of the file's PE, which may be another.
        """
        pairs = zip(size_of(config), self.size(weights))
        if any(of_model != stored for of_model, stored in pairs if of_model is not None and stored is not None):
            return None
        model = build(config)
        if model is None:
            return None
        try:
            grid = grid_of_file(model, weights, self.names)
        except CheckpointError:
            return None
        if grid is not None and grid != model.grid:
            if not other_grid:
                return None
            rows, columns = (side * model.patch_size for side in grid)
            config['img_size'] = rows if rows == columns else (rows, columns)
            model = build(config)
        if model is None or mismatch(weights.recorded, self.record(model)):
            return None
        return model if is_of(model, weights, self.names.tables(weights)) else None

    # what a file is, for its user

    def describe(
        self, model_class: type, weights: Weights, path: str
    ) -> tuple[dict[str, Any], dict[str, Any] | None, list[str]]:
        """Describe a file.

        Returns:
            Printable values by name; the complete configuration that loads it, None if nothing tells it; and what a
            user has to know beside it.
        """
        rows, notes, match = self.rows(weights), self.notes(weights), self.find(model_class, weights)
        if match is None:
            return rows | shapes(weights, self.names), None, notes
        if match.model is not None:
            rows = {**({'model': match.name} if match.name else {}), **rows, **printable(self.record(match.model))}
            notes += filter(None, [ambiguity(weights.recorded, match.model)])
        init_cfg = dict(type='Pretrained', checkpoint=path)
        return rows, {**match.config, 'init_cfg': init_cfg}, notes

    def rows(self, weights: Weights) -> dict[str, Any]:
        """Return printable values that names, shapes and the record of a file tell, by name."""
        sizes = dict(zip(('width', 'layers'), self.size(weights)))
        tables = {name: tuple(weights.tensors[name].shape) for name in self.names.tables(weights)[:1]}
        known = {key: value for key, value in sizes.items() if value is not None}
        return known | tables | printable(weights.recorded)

    def notes(self, weights: Weights) -> list[str]:
        """Return what a user has to know of a file that no configuration says."""
        return [f'{self.untold} leave no trace in a file'] if self.untold and not weights.is_described else []

    def arguments(self, model_class: type, weights: Weights) -> dict[str, Any]:
        """Return the arguments that a file records, beside those that no layout needs a place for."""
        defaults, config = parameters(model_class), weights.recorded.get('config')
        described = {**(config if isinstance(config, Mapping) else {}), **weights.recorded}
        always = ('pe_type', *self.assumed_arguments)
        return {
            key: value
            for key, value in described.items()
            if key in defaults and key not in UNTOLD and (key in always or value != defaults[key])
        }

    def view(self, model_class: type, weights: Weights, grid: Grid | None, path: str) -> dict[str, Any]:
        """Return the configuration of a model that shows the position encodings of a file with a PE of ``grid``.

        Raises:
            CheckpointError: If nothing tells it.
        """
        known = {'grid': list(grid)} if grid else {}
        match = self.find(model_class, replace(weights, recorded={**weights.recorded, **known}))
        if match is None:
            raise CheckpointError(
                f'checkpoint {path} is of no model that has a name: name its config too, CONFIG@{path}'
            )
        return {**match.config, 'init_cfg': None}

    # a file's tensors as a model takes them

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them: resized, without what it has no place for.

        ``report`` gets what was dropped and resized, and problems.

        Raises:
            CheckpointError: If the weights cannot be meant for this model.
        """
        tensors, position = dict(weights.tensors), model.position
        if position.absolute is not None or position.inside:
            fit_pe_norms(model, position.joining.name, tensors, model.absent_parts(), options, report)
        grid = options.grid or weights.grid
        pe_type = {key: value for key, value in weights.recorded.items() if key == 'pe_type'}
        recorded = bool(pe_type) and not mismatch(pe_type, self.record(model))
        for name in model.stored_tables():
            if name in tensors:
                table = with_batch_axis(tensors[name])
                reading = read_table(model, name, table, self.table_tokens(model, weights), grid, report.path)
                if not recorded:
                    require_kind(model, name, table, reading, report)
                tensors[name] = fit_table(model, name, table, reading, report)
        tensors |= resize_inside(model, tensors, grid, report.resized)
        unwanted = set() if position.absolute or position.inside else set(self.names.tables(weights))
        for name in list(tensors):
            if name in unwanted or name.startswith(model.absent_parts()):
                del tensors[name]
                report.dropped.append(name)
        return tensors

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor that a file lacks may keep its initial values."""
        if name.startswith(self.parts):
            return not self.has_parts(weights)
        if name.startswith('removal.'):
            return True
        if name in model.pe_names and model.position.absolute.unstored:
            return not self.names.tables(weights)
        place = norm_place(name)
        if not options.allow_joining_mismatch or place is None or weights.has(rf'{re.escape(place)}\.'):
            return False
        return any(has_norms_in(joining, self.names.norm_places(weights)) for joining in joinings().values())

    def resize_loaded(self, model: nn.Module, state_dict: dict[str, Tensor], prefix: str, grid: Grid | None) -> None:
        """Resize the PE in a state dict that is loaded, and log what was resized."""
        resized = self.resize(model, state_dict, prefix, grid)
        if resized:
            log(f'load_state_dict: {summary_of_resized(resized)}')

    def resize(
        self, model: nn.Module, state_dict: dict[str, Tensor], prefix: str, grid: Grid | None
    ) -> dict[str, str]:
        """Resize the PE in a state dict, also of a model that contains this one, to the model's grid, in place.

        The names begin with ``prefix``; ``grid`` is that of the stored PE, None if it is unknown.

        Returns:
            What was resized, and how, by name.
        """
        stored = {name.removeprefix(prefix): value for name, value in state_dict.items() if name.startswith(prefix)}
        resized: dict[str, str] = {}
        tensors: dict[str, Tensor] = {}
        for name in model.stored_tables():
            if name in stored:
                tensors[name] = table = with_batch_axis(stored[name])
                with contextlib.suppress(CheckpointError):  # the shape is what strict loading refuses then
                    reading = read_table(model, name, table, [model.table_tokens()], grid, '')
                    tensors[name] = resized_table(model, name, table, reading, resized)
        tensors |= resize_inside(model, stored, grid, resized)
        state_dict.update({prefix + name: value for name, value in tensors.items()})
        return {prefix + name: how for name, how in resized.items()}


PLAIN = CheckpointAdapter()
"""Of a backbone that names no other: its files are not recognised by their keys."""
