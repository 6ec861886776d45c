r"""What the checkpoint files of a backbone look like, and how they fit a model: an object that the backbone names.

    class MyBackbone(BaseBackbone):
        checkpoint_adapter = CheckpointAdapter(signs=(r'stem\.0\.weight', r'stages\.0\.attn\.qkv\.'))

An adapter has no state. Methods get the class of the backbone (``kind``) where there is no model yet, else the model.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.lookup import Candidate, Match, Size, build, kind_of, signature, size_of
from mmlape.checkpoint.metadata import (
    ambiguity,
    arguments_in,
    lasting_arguments,
    mismatch,
)
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError, ConfigError
from mmlape.log import log
from mmlape.models.base.fitting import fit_pe_norms, fit_table, norm_place, resize_inside
from mmlape.models.base.tensor_names import Description, TensorNames, with_batch_axis
from mmlape.models.grid import Grid, square_grid
from mmlape.models.named_layers import ACTIVATIONS, NORMS
from mmlape.models.names import own_parameters, parameters
from mmlape.models.position import has_norms_in, joinings
from mmlape.weights import gate
from mmlape.weights.load_report import summary_of_resized

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


class CheckpointAdapter:
    """The files of a backbone: recognised, described, translated, and fitted to a model.

    Args:
        signs: Regular expressions that each match a key of the backbone's files, if they have one layout only. A file
            of other signs is of another backbone.

    Attributes:
        public_layouts: How files are recognised, and translated to this package's names; the most special first.
        public_targets: The layouts that weights can be written in, beside this package's.
        names: The names of the tensors that belong to position encodings.
        config_key: The key of a configuration that holds such a model.
        assumed_arguments: Arguments that change what a model computes, but no name and no shape of its tensors, with
            the values that a file without a record is taken to mean. A model lists its own values in
            ``recorded_arguments``.
    """

    public_layouts: ClassVar[tuple[Layout, ...]] = ()
    public_targets: ClassVar[Mapping[str, Target]] = {}
    names: ClassVar[TensorNames] = TensorNames()
    config_key: ClassVar[str] = 'backbone'
    assumed_arguments: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, signs: tuple[str, ...] = ()):
        self.signs = signs

    # recognise and translate

    def layouts(self, kind: type) -> tuple[Layout, ...]:
        """Return how files are recognised, and translated to this package's names; the most special layouts first."""
        return (Layout(kind.__name__, self.signs),) if self.signs else self.public_layouts

    def owns(self, kind: type, weights: Weights) -> bool:
        """Check whether translated weights are those of this backbone, not of another one with the same layouts."""
        return True

    def targets(self) -> dict[str, Target]:
        """Return the layouts that weights can be written in."""
        return {'mmlape': Target(wrapper='state_dict'), **self.public_targets}

    def table_prefix(self, kind: type, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return how many rows for prefix tokens each PE table of a file, of ``grid``, begins with, by its name."""
        count = sum(name in weights.tensors for name in kind.prefix_tokens)
        return dict.fromkeys(self.names.tables(weights), count)

    # find the configuration

    def find(
        self, kind: type, weights: Weights, candidates: Iterable[Candidate] = ()
    ) -> Match | None:
        """Return the configuration of a file's model; None if nothing tells it.

        It is the one that the file records, or the first candidate of the same names and shapes: of ``candidates``,
        then of the models that have a name. ``Match.model`` is None where the file records it.
        """
        weights = replace(weights, recorded=_admitted(weights.recorded, weights))
        recorded = self.recorded(kind, weights)
        if recorded:
            return Match('', _admitted(recorded, weights), None)
        every = (*candidates, *self.candidates(kind, weights))
        for other_grid in (False, True):  # AugReg's ViTs are DeiT's for larger images
            for candidate in every:
                found = self.compare(candidate, weights, other_grid)
                if found:
                    return found
        return None

    def recorded(self, kind: type, weights: Weights) -> dict[str, Any]:
        """Return the configuration that a file records, or that a run has stored in it; empty if there is none."""
        config = weights.recorded.get('config')
        own = kind_of(config) if isinstance(config, Mapping) else None
        if own and issubclass(own, kind):
            return lasting_arguments(config)
        config = arguments_in(weights.config, self.config_key, kind.__name__)
        # OpenMMLab has other backbones of these names
        is_other = kind.__module__.startswith('mmlape.') and not str(config.get('type')).startswith(
            'mmlape.'
        )
        return {} if is_other else config

    def candidates(self, kind: type, weights: Weights) -> Iterator[Candidate]:
        """Yield the models of a class that have a name, with the arguments that a file and its layout tell."""
        known = parameters(kind)
        described = {**weights.arguments, **weights.recorded}
        described = {key: value for key, value in described.items() if key in known}
        for name, options in (vars(kind).get('model_names') or {}).items():
            # what an older file records may be another model's than the one of this name
            name = '' if weights.recorded else name
            yield Candidate(name, {'type': f'mmlape.{kind.__name__}', **options, **described})

    def size(self, weights: Weights) -> Size:
        """Return the width of the first layer's tokens and the number of layers."""
        layers = self.names.layers(weights)
        qkv = layers[0].get(f'{self.names.attn}qkv.weight') if layers else None
        return None if qkv is None else qkv.shape[1], len(layers) or None

    def compare(
        self, candidate: Candidate, weights: Weights, other_grid: bool = False
    ) -> Match | None:
        """Return a candidate as it fits a file; None if names or shapes differ.

        With ``other_grid`` it is made for the grid of the file's PE, which may be another than its own.
        """
        pairs = zip(size_of(candidate.config), self.size(weights))
        if any(own != stored for own, stored in pairs if own is not None and stored is not None):
            return None
        config = dict(candidate.config)
        model = build(config)
        if model is None:
            return None
        grid = self.grid(model, weights)
        if grid is not None and grid != model.grid:
            if not other_grid:
                return None
            rows, columns = (side * model.patch_size for side in grid)
            config['img_size'] = rows if rows == columns else (rows, columns)
            model = build(config)
        if model is None or mismatch(weights.recorded, self.record(model)):
            return None
        return Match(candidate.name, config, model) if self.is_of(model, weights) else None

    def is_of(self, model: nn.Module, weights: Weights) -> bool:
        """Check whether a file has the names and shapes of a model, also if it lacks a table that is never stored."""
        tables = self.names.tables(weights)
        stored = weights.tensors | {name: with_batch_axis(weights.tensors[name]) for name in tables}
        own = model.state_dict()
        if not tables and model.pe_names and model.position.absolute.unstored:
            own = {name: value for name, value in own.items() if name not in model.pe_names}
        return signature(own) == signature(stored)

    def grid(self, model: nn.Module, weights: Weights) -> Grid | None:
        """Return the grid of a file's position encodings in such a model; None if nothing tells it."""
        if weights.grid:
            return weights.grid
        for name in model.pe_names:
            if name in weights.tensors:
                return square_grid(
                    with_batch_axis(weights.tensors[name]).shape[1] - model.pe_prefix
                )
        attn = self.names.attention(weights)
        encodings = model.all_layers[0].attention.encodings if model.position.inside else ()
        for encoding in encodings:
            if encoding.has_grid and not encoding.slot.window and encoding.found_in(attn):
                return encoding.infer_grid(attn, encoding.slot.num_prefix)
        return None

    # describe

    def describe(
        self, kind: type, weights: Weights, path: str, candidates: Iterable[Candidate] = ()
    ) -> Description:
        """Describe a file; ``config`` is the complete one that loads it, None if nothing tells it."""
        rows, notes, found = (
            self.rows(weights),
            self.notes(weights),
            self.find(kind, weights, candidates),
        )
        if found is None:
            return Description(rows | self.shapes(weights), None, notes)
        if found.model is not None:
            rows = {
                **({'model': found.name} if found.name else {}),
                **rows,
                **_printable(self.record(found.model)),
            }
            notes += filter(None, [ambiguity(weights.recorded, found.model)])
        init_cfg = dict(type='Pretrained', checkpoint=path)
        return Description(rows, {**found.config, 'init_cfg': init_cfg}, notes)

    def rows(self, weights: Weights) -> dict[str, Any]:
        """Return printable values that names, shapes and the record of a file tell, by name."""
        sizes = dict(zip(('width', 'layers'), self.size(weights)))
        tables = {
            name: tuple(weights.tensors[name].shape) for name in self.names.tables(weights)[:1]
        }
        known = {key: value for key, value in sizes.items() if value is not None}
        return known | tables | _printable(weights.recorded)

    def shapes(self, weights: Weights) -> dict[str, Any]:
        """Return what describes a file of an unknown model: its norms, and the shapes of the first layer."""
        norms = [
            name for name, value in weights.tensors.items() if re.search(r'norm\w*\.\w+$', name)
        ]
        own = dict.fromkeys(re.sub(r'\.\d+\.', '.*.', name.rpartition('.')[0]) for name in norms)
        layers = self.names.layers(weights)
        first = (
            f'{name} {tuple(value.shape)}' for name, value in (layers[0] if layers else {}).items()
        )
        return {'norms': ', '.join(own) or 'none', 'first layer': ', '.join(first)}

    def notes(self, weights: Weights) -> list[str]:
        """Return what a user has to know of a file that no configuration says."""
        return []

    def arguments(self, kind: type, weights: Weights) -> dict[str, Any]:
        """Return the arguments that a file records, beside those that no layout needs a place for."""
        defaults, config = parameters(kind), weights.recorded.get('config')
        described = {**(config if isinstance(config, Mapping) else {}), **weights.recorded}
        always = ('pe_type', *self.assumed_arguments)
        return {
            key: value
            for key, value in described.items()
            if key in defaults and key not in UNTOLD and (key in always or value != defaults[key])
        }

    def view(self, kind: type, weights: Weights, grid: Grid | None, path: str) -> dict[str, Any]:
        """Return the configuration of a model that shows the position encodings of a file with a PE of ``grid``.

        Raises:
            CheckpointError: If nothing tells it.
        """
        found = self.find(kind, weights if grid is None else weights.on_grid(grid))
        if found is None:
            raise CheckpointError(
                f'checkpoint {path} is of no model that has a name: name its config too, '
                f'CONFIG@{path}'
            )
        return {**found.config, 'init_cfg': None}

    # what files record

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

    # fit

    def infer_table_tokens(
        self, model: nn.Module, weights: Weights, grid: Grid | None
    ) -> dict[str, int]:
        """Return the prefix tokens that a file's PE tables, of ``grid``, have rows for, and how many each."""
        known = dict.fromkeys((*type(model).prefix_tokens, *model.prefix_tokens), 1)
        return {name: count for name, count in known.items() if name in weights.tensors}

    def fit(
        self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport
    ) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them: resized, without what it has no place for.

        ``report`` gets what was dropped and resized, and problems.

        Raises:
            CheckpointError: If the weights cannot be meant for this model.
        """
        tensors, position = dict(weights.tensors), model.position
        if position.absolute is not None or position.inside:
            fit_pe_norms(
                model, position.joining.name, tensors, model.absent_parts(), options, report
            )
        grid = options.grid or weights.grid
        pe_type = {key: value for key, value in weights.recorded.items() if key == 'pe_type'}
        recorded = bool(pe_type) and not mismatch(pe_type, self.record(model))
        for name in model.pe_names:
            if name in tensors:
                stored = self.infer_table_tokens(model, weights, grid)
                source = grid and model.table_grid(name, grid)
                tensors[name] = fit_table(
                    tensors[name], name, stored, source, model, report, recorded
                )
        tensors |= resize_inside(model, tensors, grid, report.resized)
        unwanted = (
            set() if position.absolute or position.inside else set(self.names.tables(weights))
        )
        for name in list(tensors):
            if name in unwanted or name.startswith(model.absent_parts()):
                del tensors[name]
                report.dropped.append(name)
        return tensors

    def may_be_new(
        self, model: nn.Module, name: str, weights: Weights, options: LoadOptions
    ) -> bool:
        """Check whether a tensor that a file lacks may keep its initial values."""
        if name in model.pe_names and model.position.absolute.unstored:
            return not self.names.tables(weights)
        place = norm_place(name)
        if (
            not options.allow_joining_mismatch
            or place is None
            or weights.has(rf'{re.escape(place)}\.')
        ):
            return False
        return any(
            has_norms_in(one, self.names.norm_places(weights)) for one in joinings().values()
        )

    # plain state dicts of such a model, also by torch's or MMEngine's own functions

    def resize(
        self, model: nn.Module, state_dict: dict[str, Tensor], prefix: str, grid: Grid | None
    ) -> dict[str, str]:
        """Resize the PE in a state dict, also of a model that contains this one, to the model's grid, in place.

        The names begin with ``prefix``; ``grid`` is that of the stored PE, None if it is unknown.

        Returns:
            What was resized, and how, by name.
        """
        stored = {
            name.removeprefix(prefix): value
            for name, value in state_dict.items()
            if name.startswith(prefix)
        }
        resized: dict[str, str] = {}
        tensors = self.resize_tables(model, stored, grid, resized) | resize_inside(
            model, stored, grid, resized
        )
        state_dict.update({prefix + name: value for name, value in tensors.items()})
        return {prefix + name: how for name, how in resized.items()}

    def resize_tables(
        self,
        model: nn.Module,
        stored: dict[str, Tensor],
        grid: Grid | None,
        resized: dict[str, str],
    ) -> dict[str, Tensor]:
        """Return the PE tables (rows, D) or (1, rows, D) of such a model on its grid; what does not fit, as it is."""
        out, prefix = {}, model.pe_prefix
        for name in model.pe_names:
            if name not in stored:
                continue
            table = out[name] = with_batch_axis(stored[name])
            dst = model.table_grid(name, model.grid)
            known = dst if table.shape == getattr(model, name).shape else None
            src = (model.table_grid(name, grid) if grid else known) or square_grid(
                table.shape[1] - prefix
            )
            if src not in (None, dst):
                out[name] = model.position.absolute.resize(
                    table, src, dst, prefix, model.interpolate_mode
                )
                resized[name] = f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'
        return out


def _admitted(values: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """Return what a file says of its model, if a model may be built of it."""
    known = (*NORMS, *ACTIVATIONS)
    return gate.admit(values, f'checkpoint {weights.path}', known=known)


def _printable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record has, as a description shows it."""
    shown = {key: value for key, value in record.items() if key not in ('config', 'grid')}
    return shown | ({'pe grid': '{} x {}'.format(*record['grid'])} if 'grid' in record else {})


def resize_on_load(model: nn.Module) -> None:
    """Let state dicts of a model tell the grid of its PE, and resize the PE of those that are loaded."""
    model.register_state_dict_post_hook(_note_grid)
    model.register_load_state_dict_pre_hook(_resize_loaded)


def require_registered(backbone: nn.Module) -> None:
    """Check that the constructor of a backbone has registered its arguments.

    Raises:
        ConfigError: If one is missing.
    """
    kind = type(backbone)
    missing = [name for name in own_parameters(kind) if name not in backbone.arguments]
    if missing:
        raise ConfigError(
            f'{kind.__name__}: files cannot record {", ".join(missing)}: its constructor must call '
            'self.register_arguments(locals()) behind super().__init__(...)'
        )


def recorded_config(backbone: nn.Module) -> dict[str, Any]:
    """Return the configuration of a backbone: ``type``, ``arch``, and arguments that are not their defaults.

    Raises:
        ConfigError: If its constructor has not registered its arguments.
    """
    require_registered(backbone)
    kind = type(backbone)
    defaults = parameters(kind)
    told = {
        key: value
        for key, value in backbone.arguments.items()
        if key == 'arch' or value != defaults[key]
    }
    return {'type': f'mmlape.{kind.__name__}', **lasting_arguments(told)}


def _note_grid(model: nn.Module, state_dict: Mapping, prefix: str, local_metadata: dict) -> None:
    record = model.checkpoint_adapter.record(model)
    if 'grid' in record:
        local_metadata['grid'] = tuple(record['grid'])


def _resize_loaded(
    model: nn.Module, state_dict: dict, prefix: str, local_metadata: Mapping, *args
) -> None:
    resized = model.checkpoint_adapter.resize(model, state_dict, prefix, local_metadata.get('grid'))
    if resized:
        log(f'load_state_dict: {summary_of_resized(resized)}')
