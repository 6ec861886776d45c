"""The configuration of a file's model: what the file records, or a candidate of the same names and shapes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import nn

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.lookup import Candidate, Match, Size, build, class_of, signature, size_of
from mmlape.checkpoint.metadata import arguments_in, lasting_arguments, mismatch
from mmlape.errors import CheckpointError
from mmlape.models.base.fitting import read_table
from mmlape.models.base.recognising import RecognisesFiles
from mmlape.models.base.recording import RecordsModels
from mmlape.models.base.tensor_names import TensorNames, with_batch_axis
from mmlape.models.grid import Grid
from mmlape.models.named_layers import ACTIVATIONS, NORMS
from mmlape.models.names import parameters
from mmlape.weights import gate


class FindsConfigs(RecognisesFiles, RecordsModels):
    """Finds the configuration of a file's model.

    Attributes:
        config_key: The key of a configuration that holds such a model.
    """

    config_key: ClassVar[str] = 'backbone'

    def find(self, model_class: type, weights: Weights, candidates: Iterable[Candidate] = ()) -> Match | None:
        """Return the configuration of a file's model; None if nothing tells it.

        It is the one that the file records, or the first candidate of the same names and shapes: of ``candidates``,
        then of the models that have a name. ``Match.model`` is None where the file records it.
        """
        weights = replace(weights, recorded=_admitted(weights.recorded, weights))
        recorded = _recorded(model_class, weights, self.config_key)
        if recorded:
            return Match('', _admitted(recorded, weights), None)
        every = (*candidates, *self.candidates(model_class, weights))
        for other_grid in (False, True):  # AugReg's ViTs are DeiT's for larger images
            for candidate in every:
                found = self.compare(candidate, weights, other_grid)
                if found:
                    return found
        return None

    def candidates(self, model_class: type, weights: Weights) -> Iterator[Candidate]:
        """Yield the models of a class that have a name, with the arguments that a file and its layout tell."""
        known = parameters(model_class)
        described = {**weights.arguments, **weights.recorded}
        described = {key: value for key, value in described.items() if key in known}
        for name, options in (vars(model_class).get('model_names') or {}).items():
            # what an older file records may be another model's than the one of this name
            name = '' if weights.is_described else name
            yield Candidate(name, {'type': f'mmlape.{model_class.__name__}', **options, **described})

    def size(self, weights: Weights) -> Size:
        """Return the width of the first layer's tokens and the number of layers."""
        layers = self.names.layers(weights)
        qkv = layers[0].get(f'{self.names.attn}qkv.weight') if layers else None
        return None if qkv is None else qkv.shape[1], len(layers) or None

    def compare(self, candidate: Candidate, weights: Weights, other_grid: bool = False) -> Match | None:
        """Return a candidate as it fits a file; None if names or shapes differ.

        With ``other_grid`` it is made for the grid of the file's PE, which may be another than its own.
        """
        pairs = zip(size_of(candidate.config), self.size(weights))
        if any(of_model != stored for of_model, stored in pairs if of_model is not None and stored is not None):
            return None
        config = dict(candidate.config)
        model = build(config)
        if model is None:
            return None
        try:
            grid = _grid(model, weights, self.names)
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
        is_same = _is_of(model, weights, self.names.tables(weights))
        return Match(candidate.name, config, model) if is_same else None


def _recorded(model_class: type, weights: Weights, config_key: str) -> dict[str, Any]:
    """Return the configuration that a file records, or that a run has stored in it; empty if there is none."""
    config = weights.recorded.get('config')
    of_model = class_of(config) if isinstance(config, Mapping) else None
    if of_model and issubclass(of_model, model_class):
        return lasting_arguments(config)
    config = arguments_in(weights.config, config_key, model_class.__name__)
    # OpenMMLab has other backbones of these names
    is_other = model_class.__module__.startswith('mmlape.') and not str(config.get('type')).startswith('mmlape.')
    return {} if is_other else config


def _is_of(model: nn.Module, weights: Weights, tables: list[str]) -> bool:
    """Check whether a file has the names and shapes of a model, also if it lacks a table that is never stored."""
    stored = weights.tensors | {name: with_batch_axis(weights.tensors[name]) for name in tables}
    of_model = model.state_dict()
    if not tables and model.pe_names and model.position.absolute.unstored:
        of_model = {name: value for name, value in of_model.items() if name not in model.pe_names}
    return signature(of_model) == signature(stored)


def _grid(model: nn.Module, weights: Weights, names: TensorNames) -> Grid | None:
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


def _admitted(values: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """Return what a file says of its model, if a model may be built of it."""
    known = (*NORMS, *ACTIVATIONS)
    return gate.admit(values, f'checkpoint {weights.path}', known=known)
