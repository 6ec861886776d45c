"""The checks of datasets whose files hold many images each: CIFAR's and Fashion-MNIST's."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator

from mmlape.datasets.checks.base import DatasetCheck
from mmlape.datasets.checks.issues import DataIssue
from mmlape.datasets.fashion_mnist import read_pair
from mmlape.errors import DataError


class CifarCheck(DatasetCheck):
    """Checks that the files are those that are published; with ``download=True``, MMPretrain does and fetches them."""

    def check_structure(self) -> Iterator[DataIssue]:
        """Compare the checksums of all files."""
        source = self.source
        self.summary.path = source.image_dir
        for path, md5 in source.files.items() if not source.option('download') else ():
            if not os.path.isfile(path):
                raise DataError(f'{path} does not exist. {source.hint()}')
            with open(path, 'rb') as file:
                found = hashlib.md5(file.read(), usedforsecurity=False).hexdigest()
            if found != md5:
                raise DataError(
                    f'{path} ({os.path.getsize(path):,} bytes) is truncated or another file: its MD5 sum is {found}, '
                    f'that of the published one {md5}. {source.hint()}'
                )
        self.summary.seen, self.summary.sampled = set(range(self.summary.num_classes)), False
        yield from ()


class FashionMNISTCheck(DatasetCheck):
    """Reads the images and the labels of a split."""

    def check_structure(self) -> Iterator[DataIssue]:
        """Check the files, and count the labels."""
        source = self.source
        self.summary.path = source.files[0]
        self.require(source.root, 'Data root')
        _, labels = read_pair(*source.files)
        count = source.option('indices')
        labels = labels[:count].tolist() if isinstance(count, int) else labels.tolist()
        self.summary.images, self.summary.sampled = len(labels), False
        self.summary.labels.update(Counter(labels))
        self.summary.seen = set(labels)
        yield from ()
