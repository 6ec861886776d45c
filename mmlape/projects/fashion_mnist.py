"""Fashion-MNIST from the IDX files as they are published, gzipped.

A magic number, the sizes of the axes, the bytes. Debian's package ``dataset-fashion-mnist``
installs them in /usr/share/datasets/fashion-mnist.
"""

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset

from mmlape.errors import DataError
from mmlape.lab.datasets.formats import FORMATS
from mmlape.lab.datasets.formats.base import DataIssue, DataSource
from mmlape.registry import DATASETS

HINT = (
    'Fashion-MNIST: "apt-get install dataset-fashion-mnist" puts its four files into '
    '/usr/share/datasets/fashion-mnist; they are also at '
    'https://github.com/zalandoresearch/fashion-mnist'
)
SIDE = 28
STEMS = {'train': 'train', 'test': 't10k'}
UNSIGNED_BYTES = 0x08


def read_idx(path: str, axes: int) -> np.ndarray:
    """Read a gzipped IDX file of unsigned bytes, an array of so many axes.

    Raises:
        DataError: It is missing, truncated, or not such a file; the message names it.
    """
    if not os.path.isfile(path):
        raise DataError(f'{path} does not exist. {HINT}.')
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f'{path} is truncated or not gzipped ({error}). {HINT}.') from error
    header = 4 * (axes + 1)
    shape = np.frombuffer(content[4:header].ljust(4 * axes), '>u4')
    data = np.frombuffer(content[header:], np.uint8)
    if content[:4] != bytes((0, 0, UNSIGNED_BYTES, axes)) or data.size != shape.prod(dtype=np.int64):
        raise DataError(f'{path} is no complete IDX file of unsigned bytes with {axes} axes. {HINT}.')
    return data.reshape(shape)


@DATASETS.register_module()
class GzippedFashionMNIST(BaseDataset):
    """Fashion-MNIST: grey images of 28x28 pixels in ten classes, 60,000 to train and 10,000 to test.

    MMPretrain's ``FashionMNIST`` reads unpacked files only, and writes into their folder.

    Args:
        data_root: The folder of the four ``.gz`` files.
        split: 'train' or 'test'.
        **kwargs: Of ``mmengine.dataset.BaseDataset``, such as ``pipeline``; ``indices=10000`` takes
            the first 10,000.

    Raises:
        DataError: A file is missing, truncated or of another shape.
    """

    METAINFO = {
        'classes': (
            'T-shirt/top', 'Trouser', 'Pullover', 'Dress', 'Coat', 'Sandal', 'Shirt', 'Sneaker', 'Bag', 'Ankle boot',
        )
    }  # fmt: skip

    def __init__(self, data_root: str, split: str = 'train', **kwargs):
        self.files = idx_files(data_root, split)
        super().__init__(data_root=data_root, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Return the image, (28, 28), and the label of each sample."""
        images, labels = read_pair(*self.files)
        return [dict(img=image, gt_label=int(label)) for image, label in zip(images, labels)]


def idx_files(data_root: str, split: str) -> tuple[str, str]:
    """Return the paths of a split's images and labels."""
    if split not in STEMS:
        raise DataError(f'Fashion-MNIST has no split {split!r}: choose train or test.')
    root, stem = os.path.expanduser(data_root), STEMS[split]
    images, labels = (os.path.join(root, f'{stem}-{part}-ubyte.gz') for part in ('images-idx3', 'labels-idx1'))
    return images, labels


def read_pair(image_file: str, label_file: str) -> tuple[np.ndarray, np.ndarray]:
    """Read images (N, 28, 28) and their labels (N,).

    Raises:
        DataError: As `read_idx`; images of another size, or not as many labels, or of other
            classes.
    """
    images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
    if images.shape != (len(labels), SIDE, SIDE) or labels.max(initial=0) > 9:
        raise DataError(
            f'{image_file} has {" x ".join(map(str, images.shape))} pixels and {label_file} {len(labels)} labels up '
            f'to {labels.max(initial=0)}, not as many images of {SIDE} x {SIDE} with labels from 0 to 9. {HINT}.'
        )
    return images, labels


class FashionMNISTSource(DataSource):
    """Fashion-MNIST's gzipped IDX files."""

    instructions = HINT
    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type[Any]) -> None:
        super().__init__(split, cfg, dataset_class)
        self.files = idx_files(self.root, self.option('split'))
        self.summary.path = self.files[0]

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check the files, and count the labels."""
        self.require(self.root, 'Data root')
        count = self.option('indices')
        labels = read_pair(*self.files)[1][: count if isinstance(count, int) else None].tolist()
        self.summary.images, self.summary.sampled = len(labels), False
        self.summary.labels.update(Counter(labels))
        self.summary.seen = set(labels)
        yield from ()


FORMATS[GzippedFashionMNIST.__name__] = FashionMNISTSource
