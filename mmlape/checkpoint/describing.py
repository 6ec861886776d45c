"""Say what a checkpoint is, without building a model: layout, what its backbone tells of it, size, hash."""

import hashlib
from collections import Counter
from pathlib import Path

from torch import Tensor

from mmlape.checkpoint.download import local_path
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.reading import AVERAGES, averages_only, read_checkpoint, state_dict_of

NOT_PARAMETERS = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')


def sha256(path: str | Path) -> str:
    """Compute the hex digest of a file."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def inspect(path: str | Path) -> dict[str, object]:
    """Describe a checkpoint file.

    Returns:
        Printable values by name, in the order to print them.

    Raises:
        CheckpointError: If the file cannot be read, or no backbone recognises it.
    """
    content = read_checkpoint(path)
    tensors = state_dict_of(content, path)
    backbone, weights = recognise_backbone(content, path)
    adapter = backbone.checkpoint_adapter
    rows, config, notes = adapter.describe(backbone, weights, str(path))
    if weights.dropped or weights.heads:
        notes = [*notes, f'{len(weights.dropped) + len(weights.heads)} tensors of heads and necks are left out']
    averages = [key for key in AVERAGES if key in content]
    if averages_only(content):
        notes = [*notes, f'the weights are averaged ones (EMA), from {averages[0]}; the file has no others']
    elif averages:
        notes = [
            *notes,
            f'averaged weights (EMA) are there too, under {averages[0]}: `publish --weights ema` takes them',
        ]
    images = weights.normalisation
    dtypes = Counter(str(value.dtype).removeprefix('torch.') for value in weights.tensors.values())
    return {
        'file': str(path),
        'sha256': sha256(local_path(path)),
        'layout': weights.layout,
        **rows,
        'parameters': f'{_count(weights.tensors):,} in the {adapter.config_key}, {_count(tensors):,} in the file',
        'dtype': ', '.join(f'{name} ({count})' for name, count in dtypes.items()),
        'images': f'{images}: {images.source}' if images else 'the file does not say how they were normalised',
        'to load it': f'{adapter.config_key}={_call(config)}',
        'mind': '; '.join(notes) or 'nothing',
    }


def _count(tensors: dict[str, Tensor]) -> int:
    return sum(value.numel() for name, value in tensors.items() if not name.endswith(NOT_PARAMETERS))


def _call(options: dict) -> str:
    """Write ``dict(...)`` as in a configuration."""
    parts = (f'{key}={_call(value) if isinstance(value, dict) else repr(value)}' for key, value in options.items())
    return f'dict({", ".join(parts)})'
