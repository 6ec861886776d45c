"""The configuration of a file's model: what the file records, or a candidate that has its names and shapes.

Candidates are filtered by width and depth before one is built, on the meta device.
"""

import re
from collections.abc import Mapping
from inspect import signature as parameters_of
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import mmlape.admitted  # noqa: F401  (what the gate lets through)
from mmlape.checkpoint import gate
from mmlape.checkpoint.key_maps import Weights, with_batch_axis
from mmlape.checkpoint.metadata import arguments_in, lasting_arguments
from mmlape.errors import MMLaPEError
from mmlape.kinds import BACKBONES
from mmlape.models.base.fitting import TensorNames, read_table
from mmlape.models.grid import Grid
from mmlape.models.named_layers import ACTIVATIONS, NORMS

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
