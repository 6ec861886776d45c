"""The configuration of a file's model, what the file records or a candidate of the same names and shapes; its rows."""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.lookup import class_of, signature
from mmlape.checkpoint.metadata import arguments_in, lasting_arguments
from mmlape.models.base.fitting import read_table
from mmlape.models.base.tensor_names import TensorNames, with_batch_axis
from mmlape.models.grid import Grid
from mmlape.models.named_layers import ACTIVATIONS, NORMS
from mmlape.weights import gate

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
