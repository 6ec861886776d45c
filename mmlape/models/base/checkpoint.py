"""What a backbone says about its checkpoints: how files are recognised, described, and fitted to a model."""

from typing import Any, ClassVar

from mmengine.logging import print_log
from mmengine.model import BaseModule
from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.loading import LoadOptions, LoadReport, is_pretrained, load_init_cfg, summary_of_resized
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.base.stored_position import NAMES, TensorNames
from mmlape.models.grid import Grid, square_grid
from mmlape.models.position.stored import TablePlace, fit_table, with_batch_axis

SIZES = ('type', 'arch', 'img_size', 'patch_size', 'in_channels', 'window_size', 'init_cfg')
"""What configurations say beside the arguments that every layout must have a place for, or refuse."""


class LoadableBackbone(BaseModule):
    """The half of ``BaseBackbone``, or of a complete model, that deals with checkpoints.

    Attributes:
        checkpoint_signs: Regular expressions that each match a key of the backbone's checkpoints, and no other's.
        stored_names: Of the position encodings in its files.
        config_key: Of the configuration, where such a model stands.
        untraced: Arguments that change what a model computes, but no name and shape of its tensors: with the values
            that a file without a record is taken to mean. A model that has them replaces these by its own.
        load_report: Of the checkpoint that ``init_cfg`` names, once it is loaded.
    """

    checkpoint_signs: ClassVar[tuple[str, ...]] = ()
    stored_names: ClassVar[TensorNames] = NAMES
    config_key: ClassVar[str] = 'backbone'
    untraced: ClassVar[dict[str, Any]] = {}
    load_report: LoadReport | None = None

    @classmethod
    def checkpoint_layouts(cls) -> tuple[Layout, ...]:
        """Return how files with this backbone's weights are recognised and translated, the most special ones first."""
        return (Layout(cls.__name__, cls.checkpoint_signs),) if cls.checkpoint_signs else ()

    @classmethod
    def checkpoint_targets(cls) -> dict[str, Target]:
        """Return the layouts that weights of this backbone can be written in."""
        return {'mmlape': Target(wrapper='state_dict')}

    @classmethod
    def owns_checkpoint(cls, weights: Weights) -> bool:
        """Check whether recognised weights are those of this class, not of another one with the same layouts."""
        return True

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe a file without building a model.

        Args:
            weights: As one of ``checkpoint_layouts`` translated them.
            path: The file.

        Returns:
            Printable values by name, the ``backbone`` of a configuration that loads it (with what is usual where the
            file does not tell), and notes, which say so.
        """
        config = dict(type=f'mmlape.{cls.__name__}', init_cfg=dict(type='Pretrained', checkpoint=path))
        return dict(weights.known), config, []

    @classmethod
    def described(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Return what ``describe_checkpoint`` does, with what the file records of ``untraced``."""
        rows, config, notes = cls.describe_checkpoint(weights, path)
        recorded = {key: weights.known[key] for key in cls.untraced if key in weights.known}
        recorded = {key: value for key, value in recorded.items() if key in config or value != cls.untraced[key]}
        rows |= {key: value for key, value in recorded.items() if key in rows}
        return rows, {**config, **recorded, 'init_cfg': config['init_cfg']}, notes

    @classmethod
    def told_arguments(cls, weights: Weights) -> dict[str, Any]:
        """Return what a file tells of its model's arguments beside sizes; all that it records of ``untraced``."""
        told = cls.described(weights, '')[1]
        told |= {key: weights.known[key] for key in cls.untraced if key in weights.known}
        return {key: value for key, value in told.items() if key not in SIZES}

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return the ``backbone`` of a configuration that shows the position encodings of a file.

        Args:
            weights: As one of ``checkpoint_layouts`` translated them.
            grid: (rows, columns) of the stored PE; None for a square.
            path: The file.

        Raises:
            CheckpointError: If the file does not tell enough.
        """
        return dict(cls.describe_checkpoint(weights, path)[1], init_cfg=None)

    def checkpoint_record(self) -> dict:
        """Return what files record of this model because no key tells it: arguments by name, and the PE's grid."""
        grid = {'grid': list(self.grid)} if self.position.absolute or self.position.inside else {}
        heads = getattr(self, 'arch', {}).get('num_heads')
        return {**self.position.options(), **grid, **({'num_heads': heads} if heads else {}), **self.untraced}

    def ambiguous_options(self) -> dict[str, list[str]]:
        """Return the arguments whose value no key tells, with the values that leave the keys of this model's."""
        attn = self.all_layers[0].attention if self.position.inside else None
        readings = (own.readings(attn.state_dict(), own.slot.num_prefix) for own in attn.encodings) if attn else ()
        return {**self.position.ambiguous_options(), 'pe_type': [text for texts in readings for text in texts]}

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens that the PE tables have rows for, and how many each."""
        return dict.fromkeys(self.prefix_tokens[: self.pe_prefix], 1)

    def table_grid(self, name: str, grid: Grid) -> Grid:
        """Return the grid of a PE table of a model whose first layer's tokens have the grid ``grid``."""
        return grid

    def stored_tokens(self, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return the prefix tokens that a file's PE tables have rows for, and how many each.

        Args:
            weights: As one of ``checkpoint_layouts`` translated them.
            grid: (rows, columns) of the stored PE; None for a square.
        """
        return {name: 1 for name in self.prefix_tokens if name in weights.tensors}

    def fit_checkpoint(self, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a checkpoint's tensors as this model takes them: resized, without what it has no place for.

        Args:
            weights: As one of ``checkpoint_layouts`` translated them.
            options: Of loading.
            report: Gets what was dropped and resized, and problems.

        Raises:
            CheckpointError: If the weights cannot be meant for this model.
        """
        tensors = dict(weights.tensors)
        self._fit_pe_norms(tensors, options, report)
        pe_type = weights.known.get('pe_type')
        recorded = pe_type is not None and pe_type == self.checkpoint_record().get('pe_type')
        for name in self.pe_names:
            if name in tensors:
                place = TablePlace(
                    self.position.absolute,
                    self.table_grid(name, self.grid),
                    self.table_tokens(),
                    self.num_prefix > 0,
                    self.interpolate_mode,
                )
                grid = options.grid or weights.grid
                stored = self.stored_tokens(weights, grid)
                source = grid and self.table_grid(name, grid)
                tensors[name] = fit_table(tensors[name], name, stored, source, place, report, recorded)
        tensors.update(self._resize_inside(tensors, options.grid or weights.grid, report.resized))
        return tensors

    def _fit_pe_norms(self, tensors: dict[str, Tensor], options: LoadOptions, report: LoadReport) -> None:
        """Refuse norms of the PE that only one side has, unless that is allowed; then drop those of the file."""
        if self.position.absolute is None and not self.position.inside:
            return
        stored = [name for name in tensors if '.pe_norm.' in name]
        wanted = [name for name in self.state_dict() if '.pe_norm.' in name]
        if bool(stored) == bool(wanted):
            return
        joining = self.position.joining.name
        if not options.allow_joining_mismatch:
            how = (
                f'with LaPE, but the model has pe_joining={joining!r}: its PE norms would be lost'
                if stored
                else f'without LaPE, but the model has pe_joining={joining!r}: PE norms would be new'
            )
            raise CheckpointError(
                f'checkpoint {report.path} was trained {how}, and its weights have learnt another attention input. '
                'Set the pe_joining that it was trained with, or pass allow_joining_mismatch=True in init_cfg to '
                'fine-tune from it all the same'
            )
        for name in stored:
            del tensors[name]
        report.dropped += stored

    def may_be_new(self, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor that a file lacks may keep its initial values."""
        if name in self.pe_names and self.position.absolute.unstored:
            return not self.stored_names.tables(weights)
        return options.allow_joining_mismatch and '.pe_norm.' in name and not weights.has(r'.*\.pe_norm\.')

    def init_weights(self) -> None:
        """Load the checkpoint of ``init_cfg``; without one, the weights made by the constructor stay."""
        cfgs = self.init_cfg if isinstance(self.init_cfg, list) else [self.init_cfg or {}]
        if not any(is_pretrained(cfg) for cfg in cfgs):
            super().init_weights()
        elif not self.is_init:
            self.load_report = load_init_cfg(self, cfgs)
            self.is_init = True

    # plain state dicts of such a model, also by torch's or MMEngine's own functions

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, '_metadata', {}).get(prefix[:-1])
        if metadata is not None and 'grid' in self.checkpoint_record():
            metadata['grid'] = tuple(self.grid)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args, **kwargs):
        """Resize the PE to the model's grid, and log it."""
        resized = self.resize_stored(state_dict, prefix, local_metadata.get('grid'))
        if resized:
            print_log(f'load_state_dict: {summary_of_resized(resized)}', logger='current')
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args, **kwargs)

    def resize_stored(self, state_dict: dict[str, Tensor], prefix: str, grid: Grid | None) -> dict[str, str]:
        """Resize the PE in a state dict of such a model to this model's grid, in place.

        Args:
            state_dict: Also of a model that contains the backbone.
            prefix: What its names begin with.
            grid: (rows, columns) of the stored PE; None if they are unknown.

        Returns:
            What was resized, and how, by name.
        """
        stored = {name.removeprefix(prefix): value for name, value in state_dict.items() if name.startswith(prefix)}
        resized = {}
        tensors = self._resize_tables(stored, grid, resized) | self._resize_inside(stored, grid, resized)
        state_dict.update({prefix + name: value for name, value in tensors.items()})
        return {prefix + name: how for name, how in resized.items()}

    def _resize_tables(self, stored: dict[str, Tensor], grid: Grid | None, resized: dict[str, str]) -> dict:
        """Return the PE tables (rows, D) or (1, rows, D) of such a model on this grid; what does not fit, as it is."""
        out, kind, prefix = {}, self.position.absolute, self.pe_prefix
        for name in self.pe_names:
            if name not in stored:
                continue
            table = out[name] = with_batch_axis(stored[name])
            dst = self.table_grid(name, self.grid)
            known = dst if table.shape == getattr(self, name).shape else None
            src = (self.table_grid(name, grid) if grid else known) or square_grid(table.shape[1] - prefix)
            if src not in (None, dst):
                out[name] = kind.resize(table, src, dst, prefix, self.interpolate_mode)
                resized[name] = f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'
        return out

    def _resize_inside(self, stored: dict[str, Tensor], grid: Grid | None, resized: dict[str, str]) -> dict:
        """Return what a file keeps of the encodings inside attention, on this grid."""
        out = {}
        for start, layer in zip(self.layer_names, self.all_layers if self.position.inside else ()):
            prefix = f'{start}{layer.attn_name}.'
            attn = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
            own = layer.attention.state_dict()
            for encoding in layer.attention.encodings:
                fitted = encoding.fit(attn)
                for name in (name for name in attn if fitted[name] is not attn[name]):
                    out[prefix + name] = fitted[name]
                    resized[prefix + name] = f'{tuple(attn[name].shape)} -> {tuple(fitted[name].shape)}'
                attn = fitted
            if not grid and all(own[name].shape == value.shape for name, value in attn.items() if name in own):
                continue
            for encoding in layer.attention.encodings:
                if not (encoding.has_grid and encoding.found_in(attn)):
                    continue
                known, dst = None if encoding.slot.window else grid, encoding.slot.grid
                src = known or encoding.infer_grid(attn, encoding.slot.num_prefix)
                if src in (None, dst):
                    continue
                for name, value in encoding.resize(attn, src).items():
                    if value is not attn.get(name):
                        out[prefix + name] = value
                        resized[prefix + name] = f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'
        return out
