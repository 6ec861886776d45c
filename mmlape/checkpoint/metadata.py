"""What a file records beside its weights, because their names and shapes do not tell it.

    {'backbones': {'backbone': {'pe_type': 'learnable', 'pe_joining': 'lape', 'pe_norm': 'layernorm', 'grid': [8, 8],
                                'num_heads': 3, 'config': {'type': 'mmlape.VisionTransformer', 'arch': 'deit-tiny'}}},
     'mean': [123.675, 116.28, 103.53], 'std': [58.395, 57.12, 57.375]}

A PyTorch file has it as ``meta['mmlape']``, a safetensors file as JSON in its metadata. What stands there of a
backbone is the knowledge of its checkpoint adapter; ``config`` is its complete configuration but for
``TRAINING_ARGUMENTS``, which older files lack.
"""

import contextlib
import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from mmlape.checkpoint.exact_loading import HALF, IMAGENET, Normalisation, normalisation_of
from mmlape.checkpoint.fetching import local_path
from mmlape.checkpoint.opening import AVERAGES, WRAPPERS, OpenedFile, plain_names
from mmlape.checkpoint.plain_config import read_plain
from mmlape.errors import CheckpointError

HUB_NAMES = ('model.safetensors', 'pytorch_model.bin')
"""Names of weights on the Hugging Face hub, beside which timm keeps its ``config.json``."""
KEY = 'mmlape'
"""Its key in ``meta``, and in the metadata of a safetensors file."""
MAX_SIDE = 2**14
"""Of a grid that a file may record; larger ones are no grids of patches."""
MAX_PIXEL = 1e6
"""Of a mean or a deviation that a file may record."""
ADAPTED = ('grid', 'window_attn', 'window_size', 'pad_small_map', 'out_type', 'config')
"""Entries that a task adapts, so that they may differ."""
TRAINING_ARGUMENTS = (
    'init_cfg',
    'pretrained',
    'checkpoint',
    'frozen_stages',
    'with_cp',
    'drop_rate',
    'attn_drop_rate',
    'drop_path_rate',
)
"""Arguments of backbones that trained weights do not depend on; files do not record them."""


def stored_normalisation(file: OpenedFile, recorded: Mapping) -> Normalisation | None:
    """Return what the weights in a file want, as far as it says so; ``recorded`` is our own metadata in it."""
    args = file.content.get('args')
    args = vars(args) if isinstance(args, Namespace) else {}
    usual = IMAGENET if args.get('imagenet_default_mean_and_std', True) else HALF
    code = 'BEiT' if 'imagenet_default_mean_and_std' in args else 'DeiT'
    sources = [
        _make(recorded, 1, 'recorded'),
        _make(
            next(_named_dicts(stored_config(file), 'data_preprocessor'), {}),
            1,
            'data_preprocessor of the stored config',
        ),
        _make(_pretrained_cfg(file.meta, local_path(file.path)), 255, "timm's pretrained_cfg"),
        _make(args, 255, "timm's training arguments"),
        replace(usual, source=f"{code}'s training arguments") if 'data_set' in args else None,
    ]
    return next(filter(None, sources), None)


def _make(values: Mapping, scale: int, source: str) -> Normalisation | None:
    """Return ``mean`` and ``std`` of a mapping, times ``scale``; None if they are not there."""
    parts = [values.get(name) for name in ('mean', 'std')]
    for part in parts:
        known = isinstance(part, Sequence) and part and all(isinstance(value, int | float) for value in part)
        if not known or not all(-MAX_PIXEL < value < MAX_PIXEL for value in part):
            return None
    return Normalisation(*(tuple(round(v * scale, 4) for v in part) for part in parts), source)


def _pretrained_cfg(metadata: Mapping, path: Path) -> Mapping:
    """Return timm's description of weights, from a file's metadata or from the file beside it."""
    values = _mapping(metadata.get('pretrained_cfg')) or config_beside(path)
    return _mapping(values.get('pretrained_cfg')) or values


def config_beside(path: Path) -> Mapping:
    """Return the ``config.json`` beside a file that is named as on the hub; empty if there is none."""
    config = path.parent / 'config.json'
    known = path.name in HUB_NAMES and config.is_file()
    return _mapping(config.read_text(encoding='utf-8', errors='replace')) if known else {}


def stored_config(file: OpenedFile) -> str:
    """Return the text of the configuration that MMEngine stored in a file; '' if there is none."""
    text = file.meta.get('cfg')
    return text if isinstance(text, str) else ''


def arguments_in(config: str, key: str, name: str) -> dict[str, Any]:
    """Return what the text of a configuration gives under ``key`` to a class named ``name``; empty if nothing."""
    parts = (part for part in _named_dicts(config, key) if str(part.get('type')).rpartition('.')[2] == name)
    return next(parts, {})


def _named_dicts(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield each dict of a name in the text of a configuration of plain values; others have none that are sure."""
    with contextlib.suppress(CheckpointError):
        yield from _below(read_plain(text, 'the stored config'), name)


def _below(node: Any, name: str) -> Iterator[dict[str, Any]]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key == name and isinstance(value, dict):
            yield value
        if isinstance(value, dict | list | tuple):
            yield from _below(value, name)


@dataclass(frozen=True)
class Metadata:
    """What a file records."""

    # what is recorded of each backbone, by its name in the model; '' for a backbone alone
    backbones: dict[str, dict[str, Any]] = field(default_factory=dict)
    normalisation: Normalisation | None = None  # of the images; None if it is unknown

    @property
    def backbone(self) -> dict[str, Any]:
        """What is recorded of all backbones alike; empty if they differ, or there is none."""
        first, *others = self.backbones.values() or ({},)
        return first if all(other == first for other in others) else {}

    def alone(self, name: str = '') -> 'Metadata':
        """Return the metadata of a file with one backbone of this name, '' for the backbone alone."""
        return replace(self, backbones={name: self.backbone} if self.backbone else {})

    def common(self, other: 'Metadata') -> 'Metadata | None':
        """Return what two files both record; None if they differ in it."""
        of_other = other.backbones
        pairs = {name: (record, of_other[name]) for name, record in self.backbones.items() if name in of_other}
        images = [of_file for of_file in (self.normalisation, other.normalisation) if of_file]
        same = all(record[key] == others[key] for record, others in pairs.values() for key in record if key in others)
        if not same or len(set(images)) > 1:
            return None
        backbones = {
            name: {key: record[key] for key in record if key in others} for name, (record, others) in pairs.items()
        }
        return Metadata(backbones, images[0] if len(images) > 1 else None)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, empty if nothing is recorded."""
        images = self.normalisation
        values = {'backbones': self.backbones} if any(self.backbones.values()) else {}
        return values | ({'mean': list(images.mean), 'std': list(images.std)} if images else {})


def metadata_of(model: nn.Module) -> Metadata:
    """Return what a file of a model's weights has to record."""
    parts = parts_with_adapter(model)
    backbones = {name: part.checkpoint_adapter.record(part) for name, part in parts.items()}
    return Metadata(_plain(backbones), normalisation_of(model))


def parts_with_adapter(model: nn.Module) -> dict[str, Any]:
    """Return the modules in a model that name a checkpoint adapter, by name: backbones, or the complete model."""
    # asked of the class: wrappers such as torch.compile's pass attributes of what they wrap on
    return {name: part for name, part in model.named_modules() if hasattr(type(part), 'checkpoint_adapter')}


def read_metadata(file: OpenedFile) -> Metadata:
    """Return the metadata in a file, without backbones if there is none.

    Of files that others have written, the normalisation may be known.
    """
    stored = _mapping(_mapping(file.content.get('meta')).get(KEY))
    backbones = {}
    for name, entry in (_mapping(stored.get('backbones')) or _noted_grids(file.content)).items():
        backbones[str(name)] = {str(key): value for key, value in _mapping(entry).items()}
        grid = grid_in(backbones[str(name)].pop('grid', None))
        backbones[str(name)] |= {'grid': list(grid)} if grid else {}
    return Metadata(backbones, stored_normalisation(file, stored))


def _noted_grids(content: Mapping) -> dict[str, dict]:
    """Return the grids that a state dict of this package's models brings along, as a record has them."""
    held = (content.get(key) for key in (*WRAPPERS, *AVERAGES))
    noted = next((part._metadata for part in (content, *held) if hasattr(part, '_metadata')), None)
    parts = {f'{path}.' if path else '': part for path, part in _mapping(noted).items()}
    parts = {path: part for path, part in parts.items() if 'grid' in _mapping(part)}
    return {name.removesuffix('.'): {'grid': parts[path]['grid']} for name, path in plain_names(parts).items()}


def grid_in(sides: Any) -> tuple[int, int] | None:
    """Return a grid that a file records; None for what is none."""
    is_pair = isinstance(sides, list | tuple) and len(sides) == 2
    if not is_pair or not all(isinstance(side, int) and 0 < side <= MAX_SIDE for side in sides):
        return None
    return sides[0], sides[1]


def lasting_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments, also inside others, without those of training."""
    kept = {key: value for key, value in arguments.items() if key not in TRAINING_ARGUMENTS}
    return {key: lasting_arguments(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as JSON gives them back."""
    return json.loads(json.dumps(values, default=str))


def _mapping(value: object) -> Mapping:
    """Return a mapping, also from JSON; an empty one instead of anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def mismatch(stored: dict[str, Any], built: dict[str, Any]) -> str:
    """Say in which values a file's backbone differs from the model's; '' if no known value does."""
    built = _plain(built)
    keys = [key for key in built if key in stored and key not in ADAPTED and stored[key] != built[key]]
    if not keys:
        return ''
    theirs, ours = (', '.join(f'{key}={values[key]!r}' for key in keys) for values in (stored, built))
    return f'trained with {theirs}, but the model has {ours}'


def ambiguity(stored: dict[str, Any], backbone: Any) -> str:
    """Say which values of a backbone's arguments a file leaves open; '' if none."""
    built = backbone.checkpoint_adapter.record(backbone)
    options = backbone.checkpoint_adapter.ambiguous_options(backbone)
    unrecorded = {key: names for key, names in options.items() if key not in stored}
    open_ = {key: names for key, names in unrecorded.items() if any(name != built.get(key) for name in names)}
    questions = ', or '.join(f'{key} {" or ".join(names)}' for key, names in open_.items())
    taken = ', '.join(str(built.get(key)) for key in open_)
    return f'the file does not say whether it has {questions}; taken as {taken}' if open_ else ''
