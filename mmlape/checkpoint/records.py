"""What a file records beside its weights, because their names and shapes do not tell it.

    {'backbones': {'backbone': {'pe_type': 'learnable', 'pe_joining': 'lape', 'pe_norm': 'layernorm', 'grid': [8, 8],
                                'num_heads': 3}},
     'mean': [123.675, 116.28, 103.53], 'std': [58.395, 57.12, 57.375]}

A PyTorch file has it as ``meta['mmlape']``, a safetensors file as JSON in its metadata. What stands there of a
backbone is the knowledge of its checkpoint adapter.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from mmlape.checkpoint.normalisation import Normalisation, normalisation_of, stored_normalisation

KEY = 'mmlape'
"""Of the record in ``meta``, and in the metadata of a safetensors file."""
ADAPTED = ('grid', 'window_attn', 'window_size', 'pad_small_map', 'out_type')
"""Entries that a task adapts, so that they may differ."""


class Recorder(Protocol):
    """What an adapter says of a model; see ``mmlape.models.base.checkpoint.CheckpointAdapter``."""

    def record(self, model: nn.Module) -> dict[str, Any]:
        """Return the record of a model: plain values by the names of its arguments."""

    def ambiguous_options(self, model: nn.Module) -> dict[str, list[str]]:
        """Return, for each argument whose value no key tells, the values that leave the same keys."""


class Recorded(Protocol):
    """A backbone, or a complete model, that names its checkpoint adapter."""

    checkpoint_adapter: Recorder


@dataclass(frozen=True)
class Record:
    """What a file records.

    Attributes:
        backbones: The record of each backbone, by its name in the model; '' for a backbone alone.
        normalisation: Of the images; None if it is unknown.
    """

    backbones: dict[str, dict[str, Any]] = field(default_factory=dict)
    normalisation: Normalisation | None = None

    @property
    def backbone(self) -> dict[str, Any]:
        """The record that all backbones share; empty if there is none."""
        first, *others = self.backbones.values() or ({},)
        return first if all(other == first for other in others) else {}

    def alone(self, name: str = '') -> 'Record':
        """Return the record of a file with one backbone of this name, '' for the backbone alone."""
        return replace(self, backbones={name: self.backbone} if self.backbone else {})

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, empty if nothing is recorded."""
        images = self.normalisation
        known = {'backbones': self.backbones} if any(self.backbones.values()) else {}
        return known | ({'mean': list(images.mean), 'std': list(images.std)} if images else {})


def record_of(model: nn.Module) -> Record:
    """Return what a file of a model's weights has to record."""
    records = {name: part.checkpoint_adapter.record(part) for name, part in recorded_parts(model).items()}
    return Record(_plain(records), normalisation_of(model))


def recorded_parts(model: nn.Module) -> dict[str, Recorded]:
    """Return the backbones in a model, by name."""
    # asked of the class: wrappers such as torch.compile's pass attributes of what they wrap on
    return {name: part for name, part in model.named_modules() if hasattr(type(part), 'checkpoint_adapter')}


def read_record(content: Mapping, path: str | Path) -> Record:
    """Return the record in what ``read_checkpoint`` has read from a file; an empty one if there is none.

    Of files that others have written, the normalisation may be known.
    """
    stored = _mapping(_mapping(content.get('meta')).get(KEY))
    backbones = {str(name): _entry(entry) for name, entry in _mapping(stored.get('backbones')).items()}
    return Record(backbones, stored_normalisation(content, stored, path))


def _entry(stored: object) -> dict[str, Any]:
    """Return the record of one backbone without what cannot be meant."""
    sides = _mapping(stored).get('grid')
    is_grid = isinstance(sides, list) and len(sides) == 2 and all(isinstance(n, int) and n > 0 for n in sides)
    return {str(key): value for key, value in _mapping(stored).items() if key != 'grid' or is_grid}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as JSON gives them back."""
    return json.loads(json.dumps(values, default=str))


def _mapping(value: object) -> Mapping:
    """Return a mapping, also from JSON; an empty one instead of anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def mismatch(stored: dict[str, Any], own: dict[str, Any]) -> str:
    """Say in which values a file's backbone differs from the model's; '' if no known value does."""
    own = _plain(own)
    keys = [key for key in own if key in stored and key not in ADAPTED and stored[key] != own[key]]
    if not keys:
        return ''
    theirs, ours = (', '.join(f'{key}={values[key]!r}' for key in keys) for values in (stored, own))
    return f'trained with {theirs}, but the model has {ours}'


def ambiguity(stored: dict[str, Any], backbone: Recorded) -> str:
    """Say which values of a backbone's arguments a file leaves open; '' if none."""
    own = backbone.checkpoint_adapter.record(backbone)
    options = backbone.checkpoint_adapter.ambiguous_options(backbone)
    unrecorded = {key: names for key, names in options.items() if key not in stored}
    open_ = {key: names for key, names in unrecorded.items() if any(name != own.get(key) for name in names)}
    questions = ', or '.join(f'{key} {" or ".join(names)}' for key, names in open_.items())
    taken = ', '.join(str(own.get(key)) for key in open_)
    return f'the file does not say whether it has {questions}; taken as {taken}' if open_ else ''
