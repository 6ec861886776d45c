"""Write files of weights: tensors and plain values only, and what they record beside them."""

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmlape.checkpoint.metadata import KEY, Metadata
from mmlape.errors import CheckpointError
from mmlape.files import atomic_path

OUT_SUFFIXES = ('.pth', '.safetensors', '.npz')


def write_tensors(
    tensors: dict[str, Tensor],
    path: str | Path,
    wrapper: str | None = None,
    overwrite: bool = False,
    metadata: Metadata | None = None,
    config: str = '',
) -> None:
    """Write a ``.pth`` (under the key ``wrapper``, if given), a ``.safetensors`` or an ``.npz`` file atomically.

    An ``.npz`` has tensors only, so no place for metadata, and a ``.pth`` without ``wrapper`` for that of the grids
    only, as a state dict brings it along. The text of a ``config`` is for a ``.safetensors``.

    Raises:
        CheckpointError: For another suffix, metadata for an ``.npz``, or a file that is there already.
    """
    path, metadata = Path(path), metadata or Metadata()
    recorded = metadata.plain()
    if path.suffix not in OUT_SUFFIXES:
        raise CheckpointError(f'{path.name}: the name must end with {" or ".join(OUT_SUFFIXES)}')
    if path.suffix == '.npz' and metadata.beside_squares():
        raise CheckpointError(
            f'{path.name}: an .npz has no place for what the source records, {recorded}; write a .pth or .safetensors'
        )
    if path.exists() and not overwrite:
        raise CheckpointError(f'{path} is there already; choose another name or pass --overwrite')
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_path(path) as partial:
        if path.suffix == '.safetensors':
            from safetensors.torch import save_file

            texts = {KEY: json.dumps(recorded) if recorded else '', 'cfg': config}
            described = {key: text for key, text in texts.items() if text}
            save_file(tensors, partial, {'format': 'pt', **described})
            _sort_metadata(partial)
        elif path.suffix == '.npz':
            # NumPy has no bfloat16
            arrays = {name: v.float() if v.dtype == torch.bfloat16 else v for name, v in tensors.items()}
            np.savez(partial, **{name: value.numpy() for name, value in arrays.items()})
        else:
            meta = {'meta': {KEY: recorded}} if recorded else {}
            content = {wrapper: tensors, **meta} if wrapper else with_grids(tensors, metadata)
            # to a file that is open, as torch writes the name of a path, and the hash is of that
            with open(partial, 'wb') as file:
                torch.save(content, file)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata of a safetensors file, whose library writes them in any order, for the same hash."""
    with open(path, 'r+b') as file:
        size = int.from_bytes(file.read(8), 'little')
        header = json.loads(file.read(size))
        header['__metadata__'] = dict(sorted(header['__metadata__'].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(',', ':')).encode()
        file.seek(8)
        file.write(text.ljust(size))


def with_grids(tensors: dict[str, Tensor], metadata: Metadata) -> dict[str, Tensor]:
    """Return tensors as a state dict that notes the grids of its backbones, where torch looks for such notes."""
    noted = OrderedDict(tensors)
    noted._metadata = {
        name: {'grid': tuple(record['grid'])} for name, record in metadata.backbones.items() if 'grid' in record
    }
    return noted
