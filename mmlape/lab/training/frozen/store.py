"""Files of stored features: a folder for what computed them, in it a file for the views of each image.

The folder's name is the SHA-256 of the tensors and sources of the frozen part, the pipeline, the number of views, the
precision and the versions of libraries; a file's is that of the image, its annotation and its place in the dataset. So
a changed image has another file, and nothing is read that another part has computed. Files are safetensors, written
atomically; each has a checksum. The folder is this user's alone, since samples are pickled.
"""

import functools
import hashlib
import inspect
import json
import os
import pickle
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from mmlape.errors import TrainingError
from mmlape.files import atomic_path
from mmlape.lab.datasets.data_content import digest_of
from mmlape.lab.training.frozen.part import View

SUFFIX = '.safetensors'


class FeatureStore:
    """The stored features of one dataset.

    Args:
        folder: Where all features are stored.
        key: What decides the values beside the images, as JSON values.
        names: The files of the images by their place in the dataset, see `image_names`.
        views: How many views of each image there are.
        dtype: In which features are stored.

    Raises:
        TrainingError: The folder is another user's, or others may write into it.
    """

    def __init__(
        self, folder: Path, key: Mapping[str, Any], names: Sequence[str], views: int, dtype: torch.dtype
    ) -> None:
        content = dict(key, views=views, dtype=str(dtype))
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        self.folder, self.names, self.views, self.dtype = folder / digest[:32], names, views, dtype
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = self.folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise TrainingError(
                f'{self.folder}: features are read only from a folder that you alone can write: chmod 700'
            )

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self.folder / f'{self.names[index]}{SUFFIX}'

    def missing(self) -> Iterator[int]:
        """Yield the images whose file is not there or damaged, in order, each file once."""
        seen = set()
        for index in range(len(self.names)):
            if self.names[index] not in seen and not self._is_complete(self.path(index)):
                yield index
            seen.add(self.names[index])

    def _is_complete(self, path: Path) -> bool:
        try:
            with safetensors.safe_open(path, 'pt') as file:
                names = sorted(file.keys())
                return (file.metadata() or {}).get('crc') == _crc(file.get_tensor(name) for name in names)
        except (OSError, safetensors.SafetensorError):
            return False

    def write(self, index: int, views: Sequence[View]) -> int:
        """Write the views of an image; return the bytes.

        Raises:
            TrainingError: A feature is too large for the precision.
            OSError: The disk is full; what is written stays.
        """
        tensors = {}
        for number, view in enumerate(views):
            for leaf, value in enumerate(view.features):
                stored = value.to(self.dtype) if value.dtype == torch.float32 else value
                if not torch.isfinite(stored).all() and torch.isfinite(value).all():
                    raise TrainingError(
                        f'cache_features: a feature of image {index} is {float(value.abs().max()):g}, too large for '
                        f"{self.dtype}: cache_features.dtype='float32'"
                    )
                tensors[f'{number}.{leaf}'] = stored.contiguous().clone()
            rest = bytearray(zlib.compress(pickle.dumps((view.size, view.rest), protocol=5), 1))
            tensors[f'{number}.rest'] = torch.frombuffer(rest, dtype=torch.uint8)
        path = self.path(index)
        with atomic_path(path) as partial:
            crc = _crc(tensors[name] for name in sorted(tensors))
            safetensors.torch.save_file(tensors, partial, {'crc': crc, 'leaves': str(len(views[0].features))})
        return path.stat().st_size

    def read(self, index: int, view: int) -> View:
        """Return a view; its features have the precision of the store."""
        with safetensors.safe_open(self.path(index), 'pt') as file:
            features = tuple(file.get_tensor(f'{view}.{leaf}') for leaf in range(int(file.metadata()['leaves'])))
            rest = file.get_tensor(f'{view}.rest').numpy().tobytes()
        return View(features, *pickle.loads(zlib.decompress(rest)))

    def require_room(self, image: int, count: int) -> None:
        """Raise TrainingError unless so many images, of so many bytes each, fit on the disk."""
        free = shutil.disk_usage(self.folder).free
        if image * count > free:
            raise TrainingError(
                f'cache_features: {count} images need {image * count / 1e9:.1f} GB in {self.folder}, where '
                f'{free / 1e9:.1f} GB are free: fewer views, or another folder by --cache-dir'
            )


def _crc(tensors: Iterator[Tensor]) -> str:
    total = 0
    for tensor in tensors:
        total = zlib.crc32(_bytes(tensor), total)
    return f'{total:08x}'


def _bytes(tensor: Tensor) -> np.ndarray:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def part_key(module: nn.Module) -> dict[str, str]:
    """Return what decides the outputs of a module: tensors, the text of its parts, sources of their classes."""
    total = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        total.update(f'{name} {tuple(tensor.shape)} {tensor.dtype}'.encode())
        total.update(_bytes(tensor.detach().cpu()))
    sources = hashlib.sha256()
    for file in sorted({inspect.getsourcefile(type(part)) or '' for part in module.modules()} - {''}):
        sources.update(digest_of(file))
    text = hashlib.sha256(repr(module).encode())
    return dict(tensors=total.hexdigest(), sources=sources.hexdigest(), text=text.hexdigest(), torch=torch.__version__)


def image_names(dataset: Any) -> list[str]:
    """Return a name for each image of a dataset: of its files' contents, its annotation and its place.

    Raises:
        TrainingError: The dataset does not say what its samples are.
    """
    if not hasattr(dataset, 'get_data_info'):
        raise TrainingError(
            f'cache_features: {type(dataset).__name__} does not say which image a sample is of (get_data_info), as a '
            'dataset that mixes images does not'
        )
    digest = functools.cache(digest_of)
    names = []
    for index in range(len(dataset)):
        total = hashlib.sha256(str(index).encode())
        _add(total, dataset.get_data_info(index), digest)
        names.append(total.hexdigest()[:32])
    return names


def _add(total: Any, value: Any, digest: Callable[[str], bytes]) -> None:
    """Add an annotation to a digest, with the content of each file in the place of its path."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            is_file = str(key).endswith('path') and isinstance(value[key], str) and os.path.isfile(value[key])
            total.update(f'{key}:'.encode())
            _add(total, digest(value[key]) if is_file else value[key], digest)
    elif isinstance(value, list | tuple):
        total.update(f'{len(value)}['.encode())
        for one in value:
            _add(total, one, digest)
    elif isinstance(value, np.ndarray):
        total.update(f'{value.dtype}{value.shape}'.encode() + value.tobytes())
    else:
        total.update(f'{value!r};'.encode())
