"""Files of stored features: a folder for what computed them, in it a file for the views of each image.

The folder's name is the SHA-256 of the tensors of the frozen part, the pipeline, the number of views, the precision,
and the code of all of them; a file's is that of the image, its annotation and its place in the dataset. So a changed
image has another file, and nothing is read that another part has computed. Files are safetensors, written atomically;
each has a checksum. The folder is this user's alone, since samples are pickled.
"""

import functools
import hashlib
import inspect
import json
import os
import pickle
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

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

    def missing(self, indices: Iterable[int]) -> Iterator[int]:
        """Yield those of some images whose file is not there or damaged, in order, each file once."""
        seen = set()
        for index in indices:
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

    def _tensors(self, views: Sequence[View]) -> dict[str, Tensor]:
        tensors = {}
        for number, view in enumerate(views):
            for leaf, value in enumerate(view.features):
                stored = value.to(self.dtype) if value.dtype == torch.float32 else value
                if not torch.isfinite(stored).all() and torch.isfinite(value).all():
                    raise TrainingError(
                        f'cache_features: a feature is {float(value.abs().max()):g}, too large for {self.dtype}: '
                        "cache_features.dtype='float32'"
                    )
                tensors[f'{number}.{leaf}'] = stored.contiguous().clone()
            rest = bytearray(zlib.compress(pickle.dumps((view.size, view.rest), protocol=5), 1))
            tensors[f'{number}.rest'] = torch.frombuffer(rest, dtype=torch.uint8)
        return tensors

    def write(self, index: int, views: Sequence[View]) -> None:
        """Write the views of an image.

        Raises:
            TrainingError: A feature is too large for the precision.
            OSError: The disk is full; what is written stays.
        """
        tensors = self._tensors(views)
        crc = _crc(tensors[name] for name in sorted(tensors))
        content = dict(crc=crc, leaves=str(len(views[0].features)), size=str(views[0].size))
        with atomic_path(self.path(index)) as partial:
            safetensors.torch.save_file(tensors, partial, content)

    def read(self, index: int, view: int) -> View:
        """Return a view; its features have the precision of the store."""
        with safetensors.safe_open(self.path(index), 'pt') as file:
            features = tuple(file.get_tensor(f'{view}.{leaf}') for leaf in range(int(file.metadata()['leaves'])))
            rest = file.get_tensor(f'{view}.rest').numpy().tobytes()
        return View(features, *pickle.loads(zlib.decompress(rest)))

    def sample(self, index: int, view: int) -> dict[str, Any]:
        """Return a view as a sample for the data loader."""
        return self.read(index, view).sample()

    def of_each_size(self) -> list[int]:
        """Return one image of each size that there is."""
        sizes = {}
        for index in range(len(self.names)):
            with safetensors.safe_open(self.path(index), 'pt') as file:
                sizes[file.metadata()['size']] = index
        return list(sizes.values())

    def require_room(self, example: View, count: int) -> tuple[int, int]:
        """Return the bytes that so many images like an example need, and those that are free.

        Raises:
            TrainingError: They do not fit.
        """
        free = shutil.disk_usage(self.folder).free
        size = count * self.views * sum(tensor.nbytes for tensor in self._tensors([example]).values())
        if size > free:
            raise TrainingError(
                f'cache_features: {count} images x {self.views} views need about {size / 1e6:,.0f} MB, and '
                f'{free / 1e6:,.0f} MB are free in {self.folder}: fewer views, or another folder by --cache-dir'
            )
        return size, free


def _crc(tensors: Iterator[Tensor]) -> str:
    total = 0
    for tensor in tensors:
        total = zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy(), total)
    return f'{total:08x}'


def parts_of(thing: Any) -> Iterator[Any]:
    """Yield an object of a pipeline, and the objects in its attributes, each once."""
    seen, waiting = set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or inspect.isclass(one) or inspect.ismodule(one) or not hasattr(one, '__dict__'):
            continue
        seen.add(id(one))
        yield one
        values = [*vars(one).values(), *([one.func] if isinstance(one, functools.partial) else [])]
        for value in values:
            waiting += (
                value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
            )


def image_names(dataset: Any) -> list[str]:
    """Return a name for each image of a dataset: of its files' contents, its annotation and its place.

    Where a transform mixes images, it is of all of them.

    Raises:
        TrainingError: The dataset does not say what its samples are.
    """
    if not hasattr(dataset, 'get_data_info'):
        raise TrainingError(
            f'cache_features: {type(dataset).__name__} does not say which image a sample is of (get_data_info)'
        )
    digest = functools.cache(digest_of)
    content = [_content(dataset.get_data_info(index), digest) for index in range(len(dataset))]
    mixes = any(hasattr(part, name) for part in parts_of(dataset) for name in ('get_indices', 'get_indexes'))
    mixed = hashlib.sha256(''.join(content).encode()).hexdigest() if mixes else ''
    return [hashlib.sha256(f'{index} {one} {mixed}'.encode()).hexdigest()[:32] for index, one in enumerate(content)]


def _content(info: Mapping[str, Any], digest: Callable[[str], bytes]) -> str:
    """Return the digest of an annotation, with the content of each file in the place of its path."""
    files = {
        key: digest(value).decode()
        for key, value in info.items()
        if key.endswith('path') and isinstance(value, str) and os.path.isfile(value)
    }
    return hashlib.sha256(json.dumps({**info, **files}, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    array = isinstance(value, np.ndarray | np.generic)
    return [str(value.dtype), value.shape, value.tobytes().hex()] if array else repr(value)
