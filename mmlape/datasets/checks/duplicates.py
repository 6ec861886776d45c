"""Images whose files have the same content."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mmlape.datasets.formats.base import ImageEntry
from mmlape.datasets.issues import ERROR, WARNING, DataIssue


def file_digest(path: str) -> bytes | None:
    """Hash a file; None if it cannot be read."""
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).digest()
    except OSError:
        return None


class Duplicates:
    """Collects the hashes of files, and finds those that occur more than once."""

    def __init__(self) -> None:
        self._entries: dict[bytes, list[tuple[str, ImageEntry]]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, split: str, entry: ImageEntry, digest: bytes | None) -> None:
        """Add the image of a split by the hash of its file."""
        if digest is not None:
            self._entries[digest].append((split, entry))
            self._counts[split] += 1

    def issues(self, complete: bool) -> Iterator[tuple[str, DataIssue]]:
        """Yield (split, issue) for images shared with the training data, and for duplicates within a split.

        Args:
            complete: Whether all images were added: then a split that is completely trained on is an error.
        """
        shared: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for entries in self._entries.values():
            first = dict(reversed(entries))
            for split, entry in entries:
                if split != 'train' and 'train' in first:
                    shared[split].append((entry.path, first['train'].path))
                if entry is not first[split]:
                    yield split, _duplicate(entry, first[split])
        for split, pairs in shared.items():
            everything = complete and len(pairs) == self._counts[split]
            for path, other in pairs:
                message = f'{path} is {other} of the train data.'
                if everything:
                    message = (
                        f'All {len(pairs)} images of {split} are trained on, so its results mean nothing: {message}'
                    )
                yield split, DataIssue(ERROR if everything else WARNING, f'image in train and {split}', message)


def _duplicate(entry: ImageEntry, first: ImageEntry) -> DataIssue:
    if isinstance(entry.annotation, int) and entry.annotation != first.annotation:
        return DataIssue(WARNING, 'one image, two classes', f'{entry.path} is {first.path}, of another class.')
    return DataIssue(WARNING, 'duplicate image', f'{entry.path} is {first.path}.')
