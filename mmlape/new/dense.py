"""Images with boxes, masks or label maps, which may be large: windows, and parts for training and validation."""

import random
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mmcv

from mmlape.lab.datasets.images import Annotated, ImageLoader, Size, require_annotated_size
from mmlape.lab.inference.tiling import Tiling
from mmlape.new.found_data import LEAST, Found, Part, Sample

TRAINED = 2 / 3
"""Share of an image that is trained on, where the rest of it is for validation."""
MIN_KEPT = 0.3
"""Share of its box that an object has inside of a crop or of a part, to be learnt there."""


class Dense(Found):
    """What `divide_areas` divides: each image's annotation is of its pixels."""

    too_few = '; a single image is divided where it is too large to be resized'

    @abstractmethod
    def annotated(self, sample: Sample) -> Size:
        """Return the size that an annotation says of its image."""

    def told(self, tiling: Tiling) -> Iterator[str]:
        """Yield what the owner should know of windows and tiles, a sentence each."""
        yield (
            f'images are not resized: training takes windows of {tiling.side} pixels, validation and tests go by '
            f'tiles of {tiling.side} pixels that share {tiling.overlap}'
        )

    def divide(self, tiling: Tiling | None, seed: int, single: bool = False) -> None:
        """Divide images, or each one by area if there are few, and these are seen by windows."""
        if 'val' not in self.of_split and len(self.of_split['train']) < LEAST and tiling:
            self.divide_areas(seed)
        else:
            super().divide(tiling, seed, single)

    def divide_areas(self, seed: int) -> None:
        """Divide each image by a line across its longer side, one part for training and one for validation.

        Args:
            seed: Of the end that is for validation.
        """
        samples = self.of_split['train']
        ends = [random.Random(seed + place).choice(('first', 'last')) for place in range(len(samples))]
        pairs = [divide_area(self.annotated(sample), end) for sample, end in zip(samples, ends)]
        self.of_split = {
            split: [self.cut(sample, pair[place]) for sample, pair in zip(samples, pairs)]
            for place, split in enumerate(('train', 'val'))
        }
        shown = ', '.join(f'the {end} third of {sample.image}' for sample, end in zip(samples, ends))
        self.notes.append(f'too few images to leave some out: {shown} is for validation, and never trained on')
        self.summarise()

    def cut(self, sample: Sample, part: Part) -> Sample:
        """Return a part of a sample."""
        return replace(sample, part=part)

    def written(self, folder: Path) -> tuple[Path, dict[str, list[Sample]]]:
        """Return the samples of each split, and the folder from which their paths are; write parts of images there."""
        if all(sample.part is None for sample in self.of_split['train']):
            return self.listing.root, self.of_split
        root = folder / 'parts'
        return root, {
            split: [
                self.write_part(sample, sample.part, root, f'{split}/{_lossless(sample.image)}') for sample in samples
            ]
            for split, samples in self.of_split.items()
        }

    def write_part(self, sample: Sample, part: Part, root: Path, name: str) -> Sample:
        """Write a part of an image without loss, as training reads the image, and return its sample."""
        (left, top, right, low), path = part, str(self.listing.root / sample.image)
        image = ImageLoader().load(path, lambda: Annotated(self.annotated(sample)))
        require_annotated_size(path, image.size, self.annotated(sample), sample.file)
        mmcv.imwrite(image.pixels[top:low, left:right], str(root / name))
        return replace(sample, image=name)


def _lossless(image: str) -> str:
    return f'{image.removesuffix(".png")}.png'


def divide_area(size: tuple[int, int], end: str) -> tuple[Part, Part]:
    """Return the parts of an image for training and for validation, which is at its 'first' or its 'last' end."""
    width, height = size
    is_wide = width > height
    length = max(size)
    cut = round(length * (TRAINED if end == 'last' else 1 - TRAINED))
    first = (0, 0, cut, height) if is_wide else (0, 0, width, cut)
    last = (cut, 0, length, height) if is_wide else (0, cut, width, length)
    return (first, last) if end == 'last' else (last, first)


def shrink(size: tuple[int, int], side: int) -> float:
    """Return by how much an image is resized: its shorter side to ``side``, the longer one to twice that at most."""
    return min(side / min(size), 2 * side / max(size))
