"""Datasets whose files hold many images each, as they are published: CIFAR's and Fashion-MNIST's."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mmlape.datasets.fashion_mnist import HINT, idx_files, read_pair
from mmlape.datasets.formats.base import DataSource
from mmlape.datasets.issues import DataIssue
from mmlape.errors import DataError


class CifarSource(DataSource):
    """CIFAR's files, packed for Python, whose checksums are known; with ``download=True``, MMPretrain fetches them."""

    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type[Any]) -> None:
        super().__init__(split, cfg, dataset_class)
        self.summary.path = self.image_dir = os.path.join(self.root, dataset_class.base_folder)
        self.instructions = (
            f'{dataset_class.__name__}: unpack {dataset_class.url} there, so that {self.root.rstrip("/")} holds '
            f'{dataset_class.base_folder}/'
        )

    def _checksums(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the MD5 sum of each file; MMPretrain wants those of both splits."""
        cls = self.dataset_class
        for name, md5 in [*cls.train_list, *cls.test_list, (cls.meta['filename'], cls.meta['md5'])]:
            yield os.path.join(self.image_dir, name), md5

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Compare the checksums of all files."""
        for path, published in () if self.option('download') else self._checksums():
            if not os.path.isfile(path):
                raise DataError(f'{path} does not exist. {self.hint()}')
            with open(path, 'rb') as file:
                md5 = hashlib.md5(file.read(), usedforsecurity=False).hexdigest()
            if md5 != published:
                raise DataError(
                    f'{path} ({os.path.getsize(path):,} bytes) is truncated or another file: its MD5 sum is {md5}, '
                    f'that of the published one {published}. {self.hint()}'
                )
        self.summary.seen, self.summary.sampled = set(range(self.summary.num_classes)), False
        yield from ()


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
