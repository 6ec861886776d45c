"""Label maps as training gets them: the ids of a file, and those that its classes have."""

from dataclasses import dataclass

import numpy as np

from mmlape.errors import DataError
from mmlape.lab.datasets.images import JPEG, JPEG_2000, Annotated, decode, orientation, read_bytes


def read_label_map(path: str, backend: str = 'pillow', backend_args: dict | None = None) -> np.ndarray:
    """Read the label ids of an image, (H, W), as integers of whichever width.

    Raises:
        DataError: The file is missing, broken, or has colours, floats or a lossy compression.
    """
    content = read_bytes(path, backend_args)
    for starts, form in (((JPEG,), 'JPEG'), (JPEG_2000, 'JPEG 2000')):
        if content.startswith(starts):
            raise DataError(
                f'Label map {path} is a {form}, whose compression changes label ids: write it as '
                'PNG, from the labels before they were compressed.'
            )
    labels = decode(content, path, 'unchanged', backend)
    if labels.ndim == 3 and labels.shape[2] == 1:
        labels = labels[:, :, 0]
    if labels.ndim != 2:
        raise DataError(
            f'Label map {path} has {labels.shape[-1]} channels: write it as PNG with one, of the ids of classes.'
        )
    if labels.dtype.kind not in 'biu':
        raise DataError(f'Label map {path} has pixels that are floats: write it with integers of 8 bits.')
    return labels.astype(np.uint8) if labels.dtype == bool else labels


def annotated_by_map(path: str | None, backend: str = 'pillow', backend_args: dict | None = None) -> Annotated | None:
    """Return what a label map says of its image's pixels; None if there is none, or it cannot be read."""
    try:
        labels = read_label_map(path or '', backend, backend_args)
        return Annotated(labels.shape[::-1], orientation(read_bytes(path, backend_args)))
    except DataError:
        return None


def require_image_size(path: str, labels: np.ndarray, size: tuple[int, int]) -> None:
    """Raise DataError if a label map has another size than its image, (width, height)."""
    if labels.shape[::-1] != tuple(size):
        raise DataError(
            f'Label map {path} is {labels.shape[1]} x {labels.shape[0]} pixels, its image '
            f'{size[0]} x {size[1]}: each pixel of the image needs its label.'
        )


@dataclass(frozen=True)
class LabelIds:
    """The ids that label maps may have, as the files have them."""

    num_classes: int
    reduce_zero_label: bool  # 0 is no label, and the classes begin with 1
    ignore_index: int  # of unlabelled pixels, beside 255, after ``reduce_zero_label``

    def __post_init__(self) -> None:
        """Raise DataError if there are more classes than MMSegmentation has ids."""
        most = 255 - self.first
        if self.num_classes > most:
            raise DataError(
                f'The data have {self.num_classes} classes, but the label maps of MMSegmentation '
                f'have 8 bits, and 255 is no label: take {most} classes or fewer.'
            )

    @property
    def first(self) -> int:
        """The id of the first class."""
        return int(self.reduce_zero_label)

    @property
    def ignored(self) -> tuple[int, ...]:
        """The ids of unlabelled pixels, in order."""
        reduced = {255, 0, self.ignore_index + 1}
        return tuple(sorted(reduced if self.reduce_zero_label else {255, self.ignore_index}))

    @property
    def unlabelled(self) -> str:
        """The ids of unlabelled pixels that 8 bits hold, for messages."""
        return ' and '.join(str(label) for label in self.ignored if label < 256)

    def __contains__(self, label: int) -> bool:
        """Return whether an id is one of a class, or of unlabelled pixels."""
        return self.first <= label < self.first + self.num_classes or label in self.ignored

    def require(self, path: str, labels: np.ndarray) -> None:
        """Raise DataError if a label map has an id that no class has."""
        valid = (labels >= self.first) & (labels < self.first + self.num_classes)
        for label in self.ignored:
            valid |= labels == label
        if not valid.all():
            raise DataError(self.unknown_message(path, np.unique(labels[~valid]).tolist()))

    def unknown_message(self, path: str, labels: list[int]) -> str:
        """Return the message about ids that no class has."""
        ids = ', '.join(map(str, labels[:8])) + (', ...' if len(labels) > 8 else '')
        return (
            f'Label map {path} has the label id {ids}, but the dataset has {self.num_classes} classes and '
            f'reduce_zero_label={self.reduce_zero_label}: ids {self.first} to {self.first + self.num_classes - 1} are '
            f'allowed, and {self.unlabelled} for unlabelled pixels. Correct the label map, or these of the dataset.'
        )
