"""Kinds of checkpoint files: recognised by their first bytes, and held to their size before anything is unpacked."""

import math
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmlape.errors import CheckpointError

MAX_RATIO = 20
FREE_BYTES = 64 * 2**20
"""An archive may unpack to ``MAX_RATIO`` times its size (weights hardly compress), and always to ``FREE_BYTES``."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_OTHERS = {b'<': 'a web page', b'version https://git-lfs': 'a pointer of Git LFS, without the file itself'}


def kind_of(path: Path, trusted: bool = False) -> str:
    """Recognise a file.

    Args:
        path: The file.
        trusted: Whether an archive may unpack to any size.

    Returns:
        'torch', 'npz' or 'safetensors'.

    Raises:
        CheckpointError: If it is of another kind, or declares more than its size can hold.
    """
    with open(path, 'rb') as file:
        head = file.read(32)
    if head.startswith(b'PK\x03\x04'):
        return _kind_of_archive(path, trusted)
    if head[:1] == b'\x80' and head[1:2] <= b'\x05':  # PyTorch's format before version 1.6
        return 'torch'
    if head[8:9] == b'{':
        header, size = int.from_bytes(head[:8], 'little'), path.stat().st_size
        if header > size - 8:
            raise CheckpointError(
                f'checkpoint {path}: truncated or damaged, a safetensors header of {header} bytes in a file of {size}'
            )
        return 'safetensors'
    what = next((what for start, what in _OTHERS.items() if head.lstrip().startswith(start)), f'{head[:12]!r}...')
    raise CheckpointError(
        f'checkpoint {path}: unknown kind of file ({what}); PyTorch, safetensors and NumPy (.npz) files are read'
    )


def _kind_of_archive(path: Path, trusted: bool) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise CheckpointError(f'checkpoint {path}: cannot be read, truncated or damaged? ({error})') from error
    declared, size = sum(member.file_size for member in members), path.stat().st_size
    if not trusted and declared > max(FREE_BYTES, MAX_RATIO * size):
        raise CheckpointError(
            f'checkpoint {path}: refused, its {size:,} bytes unpack to {declared:,}, more than {MAX_RATIO} times as '
            'many; ask its author for an uncompressed file, or, if you trust it, pass --trust-checkpoint'
        )
    names = [member.filename for member in members]
    if any(name.rpartition('/')[2] == 'data.pkl' for name in names):
        return 'torch'
    if any(name.endswith('.npy') for name in names):
        return 'npz'
    raise CheckpointError(
        f'checkpoint {path}: an archive without tensors, it holds {", ".join(names[:3]) or "nothing"}'
    )


def read_npz(path: Path) -> dict[str, Tensor]:
    """Read the arrays of a NumPy archive; two bytes without a type are bfloat16, as JAX saves it.

    Raises:
        ValueError: If an array declares more values than the archive has, or its values are no numbers.
    """
    tensors = {}
    with np.load(path, allow_pickle=False) as archive:
        for member in archive.zip.infolist():
            name, is_array, _ = member.filename.rpartition('.npy')
            if not is_array:
                continue
            with archive.zip.open(member) as file:
                shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f'{name} declares {shape} values of {dtype} in {member.file_size} bytes')
            tensors[name] = _tensor(np.asarray(archive[name]))
    return tensors


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.itemsize == 2 and array.dtype.kind == 'V':
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
