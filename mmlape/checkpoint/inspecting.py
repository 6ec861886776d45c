"""Describe a checkpoint file: what is in it, and what loads it."""

import logging
import shlex
from collections import Counter
from pathlib import Path

from torch import Tensor

from mmlape.checkpoint.fetching import local_path
from mmlape.checkpoint.heads import describe_heads
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.metadata import read_metadata
from mmlape.checkpoint.opening import AVERAGES, OpenedFile, averages_only, not_finite, open_file
from mmlape.checkpoint.trained_alone import frozen_parts
from mmlape.console.log import log
from mmlape.errors import CheckpointError
from mmlape.files import sha256

NOT_PARAMETERS = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')
UNKNOWN = (
    'name the CONFIG that it was trained with: the file records none, and no model of mmlape.{} '
    'that has a name has these names and shapes'
)


def inspect(path: str | Path) -> dict[str, object]:
    """Describe a checkpoint file: printable values by name, in the order to print them.

    Raises:
        CheckpointError: If the file cannot be read, or no backbone recognises it.
    """
    file = open_file(path)
    content, tensors = file.content, file.tensors
    if broken := not_finite(tensors):
        log(f'checkpoint {path}: {broken}', logging.WARNING)
    rows_of_head = describe_heads(tensors)
    if frozen_parts(file):
        return _head_alone(file, tensors, rows_of_head)
    try:
        backbone, weights = recognise_backbone(file)
    except CheckpointError:
        if not rows_of_head:
            raise
        return _head_alone(file, tensors, rows_of_head)
    adapter = backbone.checkpoint_adapter
    rows, config, notes = adapter.describe(backbone, weights, str(path))
    if weights.dropped or weights.head_tensors:
        notes = [*notes, f'{len(weights.dropped) + len(weights.head_tensors)} tensors of heads and necks are left out']
    averages = next((key for key in AVERAGES if key in content), None)
    if averages_only(content):
        notes = [*notes, f'the weights are averaged ones (EMA), from {averages}; the file has no others']
    elif averages:
        notes = [*notes, f'averaged weights (EMA) are there too, under {averages}: `publish --weights ema` takes them']
    images = weights.normalisation
    dtypes = Counter(str(value.dtype).removeprefix('torch.') for value in weights.tensors.values())
    return {
        'file': str(path),
        'sha256': sha256(local_path(path)),
        'layout': weights.layout,
        **rows_of_head,
        **rows,
        'parameters': f'{_count(weights.tensors):,} in the {adapter.config_key}, {_count(tensors):,} in the file',
        'dtype': ', '.join(f'{name} ({count})' for name, count in dtypes.items()),
        'images': f'{images}: {images.source}' if images else 'the file does not say how they were normalised',
        'to load it': f'{adapter.config_key}={_call(config)}' if config else UNKNOWN.format(backbone.__name__),
        'notes': '; '.join(notes) or 'none',
    }


def _head_alone(file: OpenedFile, tensors: dict[str, Tensor], rows: dict[str, str]) -> dict[str, object]:
    """Describe a file with a head, whose frozen backbone is in another file."""
    metadata, load = read_metadata(file), f'mmlape test CONFIG {shlex.quote(file.path)}'
    parts = [
        f'the {name} is that of {part.init_cfg["checkpoint"]}, SHA-256 of its tensors {part.digest[:8]}'
        for name, part in frozen_parts(file).items()
    ]
    return {
        'file': file.path,
        'sha256': sha256(local_path(file.path)),
        'layout': 'a head without its backbone',
        **rows,
        'parameters': f'{_count(tensors):,} in the file',
        'images': str(metadata.normalisation or 'the file does not say how they were normalised'),
        'to load it': load if parts else f"{load}, where CONFIG's model.backbone.init_cfg names the backbone's file",
        'notes': '; '.join(parts) or 'the backbone leaves no trace in the file but its width',
    }


def _count(tensors: dict[str, Tensor]) -> int:
    parameters = (name for name in tensors if not name.endswith(NOT_PARAMETERS))
    return sum(tensors[name].numel() for name in parameters)


def _call(options: dict) -> str:
    """Write ``dict(...)`` as in a configuration."""
    if not all(str(key).isidentifier() for key in options):
        return repr(options)
    parts = (f'{key}={_call(value) if isinstance(value, dict) else repr(value)}' for key, value in options.items())
    return f'dict({", ".join(parts)})'
