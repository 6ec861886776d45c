"""What a folder of data holds, in the words that the rest of `mmlape new` uses."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from PIL import Image

from mmlape.errors import DataError

Task = Literal['segmentation', 'boxes', 'masks', 'classes']
TASKS = {'segmentation': 'segmentation', 'boxes': 'boxes', 'masks': 'boxes and masks', 'classes': 'classification'}
SHARE = 0.2
"""Of the images, for validation, where the data have no split."""
LEAST = 4
"""Images that training and validation need together."""
SAMPLE = 64
"""Images whose size is read."""
T = TypeVar('T')


class Variable(str):
    """The name of a variable of a config, where its value would stand."""

    def __repr__(self) -> str:
        return str(self)


CLASSES = Variable('classes')


@dataclass
class Found(ABC):
    """Data of one form: what they are for, their classes, and what a config needs to know of them.

    Args:
        task: What a model would learn.
        form: As people call it, such as "COCO's form".
        classes: Their names, in the order of the labels.
        counts: Of each class, by its name: objects, pixels or images.
        sizes: (width, height) of some images.
        notes: What the owner should know, a sentence each.
        most_objects: In an image for training, of boxes.
    """

    task: Task
    form: str
    classes: tuple[str, ...]
    counts: Counter[str]
    sizes: list[tuple[int, int]]
    notes: list[str] = field(default_factory=list)
    most_objects: int = 0

    @abstractmethod
    def images(self) -> dict[str, int]:
        """Return the number of images for 'train' and, if the data have such a split, 'val'."""

    @property
    @abstractmethod
    def image_folder(self) -> Path:
        """The folder of the images for training."""

    @abstractmethod
    def prepare(self, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
        """Write lists of a split, and what has to be converted, into a folder.

        Return the part of a config that is a dataset, without its pipeline, for 'train' and 'val'.
        """


def divide(items: Sequence[T], seed: int) -> tuple[list[T], list[T]]:
    """Return items for training and for validation, drawn by a seed, each in their order.

    Raises:
        DataError: There are fewer than ``LEAST``.
    """
    require_enough(len(items))
    chosen = set(random.Random(seed).sample(range(len(items)), max(1, round(SHARE * len(items)))))
    train = [item for place, item in enumerate(items) if place not in chosen]
    return train, [item for place, item in enumerate(items) if place in chosen]


def require_enough(count: int) -> None:
    """Raise DataError for fewer images than ``LEAST``."""
    if count < LEAST:
        raise DataError(
            f'{count} images with labels: training and validation need {LEAST} at least, and a '
            'useful model forty or more'
        )


def image_sizes(paths: Sequence[Path]) -> list[tuple[int, int]]:
    """Return (width, height) of some of the images; those that cannot be opened are left to the checks."""
    sizes = []
    step = max(1, len(paths) // SAMPLE)
    for path in paths[::step][:SAMPLE]:
        try:
            with Image.open(path) as image:
                sizes.append(image.size)
        except (OSError, ValueError):
            continue
    return sizes
