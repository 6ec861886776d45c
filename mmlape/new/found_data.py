"""What a folder of data holds: the images with their annotations, what is left out and why, and the splits."""

import posixpath
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, NamedTuple

import mmcv

from mmlape.errors import DataError
from mmlape.lab.datasets.formats.base import shorten
from mmlape.lab.datasets.images import Annotated, ImageLoader, Size, open_header, require_annotated_size
from mmlape.lab.inference.tiling import Tiling
from mmlape.new.clips import divide
from mmlape.new.listing import Listing, add_split, listed_splits, split_of

Task = Literal['segmentation', 'boxes', 'masks', 'classes']
TASKS = {'segmentation': 'segmentation', 'boxes': 'boxes', 'masks': 'boxes and masks', 'classes': 'classification'}
LEAST, SHOWN = 4, 3
"""Images that training and validation need together, and clips that a note names."""
SAMPLE = 64
"""Images whose size is read."""
TRAINED = 2 / 3
"""Share of an image that is trained on, where the rest of it is for validation."""
MIN_KEPT = 0.3
"""Share of its box that an object has inside of a crop or of a part, to be learnt there."""
NO_SPLIT = 'in no split, as others are'
"""Why an image is left out."""
Part = tuple[int, int, int, int]
"""Of an image: left, top, right, lower."""


class Variable(str):
    """The name of a variable of a config, where its value would stand."""

    def __repr__(self) -> str:
        return str(self)


CLASSES, NUM_CLASSES, PALETTE = Variable('classes'), Variable('len(classes)'), Variable('palette')


@dataclass(frozen=True)
class Sample:
    """An image with its annotation."""

    image: str  # from the root, as the paths of a listing are
    annotation: Any  # of the form
    file: str = ''  # of the annotation
    count: int = 1  # of annotations
    part: Part | None = None  # of the image, which is this sample; None for all of it


class Book(NamedTuple):
    """How many images or annotations there are, are used, and are left out by which reason."""

    what: str
    total: int
    used: dict[str, int]  # by split
    left_out: Counter[str]


@dataclass
class Found(ABC):
    """A reading of a folder in one form: its evidence, and what it uses.

    `settle` gives the images their splits; from then on there are classes and counts.
    """

    task: Task
    form: str  # as people call it, such as "COCO's form"
    listing: Listing
    samples: list[Sample] = field(default_factory=list)
    images_out: dict[str, str] = field(default_factory=dict)  # why an image is left out
    annotations_out: Counter[str] = field(default_factory=Counter)  # annotations left out, by the reason
    total: int = 0  # annotations
    is_named: bool = True  # whether the data name their classes
    ambiguous: str = ''  # which other reading there is
    splits: dict[str, tuple[str, str]] = field(default_factory=dict)  # of an image, and what says so in the form
    classes: tuple[str, ...] = ()  # in the order of the labels
    notes: list[str] = field(default_factory=list)  # of what was read
    counts: Counter[str] = field(default_factory=Counter)  # of each class in training: objects, pixels or images
    has_polygons: bool = True  # whether masks are polygons, not run lengths
    palette: list[list[int]] = field(default_factory=list)  # RGB of each class, if the data have colours
    of_split: dict[str, list[Sample]] = field(default_factory=dict)
    maps: set[str] = field(default_factory=set)  # the files of the listing's images that are label maps
    unit: ClassVar[str] = ''  # what an annotation is, where it is not the folder of an image
    sets: ClassVar[str] = 'Main'  # Pascal VOC's lists for the task
    too_few: ClassVar[str] = '; a single image is divided where it is too large to be resized'
    splits_by_folder: ClassVar[bool] = True  # whether a folder of the name of a split is one

    @abstractmethod
    def summarise(self) -> None:
        """Set classes and counts by the samples of each split."""

    @abstractmethod
    def labels(self, sample: Sample) -> set[str]:
        """Return the classes in an image."""

    @abstractmethod
    def prepare(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write lists of a split, and what has to be converted, into a folder.

        Return the part of a config that is a dataset, without its pipeline, for 'train' and 'val'.
        """

    def shown_in(self) -> Counter[str]:
        """Return the number of images for training that have each class."""
        return Counter(name for sample in self.of_split['train'] for name in self.labels(sample))

    def images(self) -> dict[str, int]:
        """Return the number of images for 'train' and, if the data have such a split, 'val'."""
        return {split: len(samples) for split, samples in self.of_split.items()}

    def sizes(self, split: str = 'train') -> list[tuple[int, int]]:
        """Return (width, height) of some images; those that cannot be opened are left to the checks."""
        samples, sizes = self.of_split[split], []
        for sample in samples[:: max(1, len(samples) // SAMPLE)][:SAMPLE]:
            try:
                with open_header(self.listing.root / sample.image) as image:
                    left, top, right, low = sample.part or (0, 0, *image.size)
            except DataError:
                continue
            sizes.append((right - left, low - top))
        return sizes

    def tiling(self, side: int) -> Tiling | None:
        """Return windows of a side, by which to train and to validate where resizing images to it loses too much."""
        return None

    def told(self, tiling: Tiling) -> Iterator[str]:
        """Yield what the owner should know of windows and tiles, a sentence each."""
        yield (
            f'images are not resized: training takes windows of {tiling.side} pixels, validation and tests go by '
            f'tiles of {tiling.side} pixels that share {tiling.overlap}'
        )

    def annotated(self, sample: Sample) -> Size:
        """Return the size that an annotation says of its image; where it is of no pixels, the image's own."""
        with open_header(self.listing.root / sample.image) as image:
            return image.size

    def fullest(self, tiling: Tiling | None = None) -> int:
        """Return the number of objects of the image, or of the tile, that has most; 0 for data without boxes."""
        return 0

    def remarks(self) -> list[str]:
        """Return what the owner should know, a sentence each."""
        absent = [name for name in self.classes if not self.counts[name]]
        return self.notes + [f'nothing to learn of {shorten(absent)}: in no image for training'] * bool(absent)

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Yield the key in the files, '' without one, the name and the count of each class, and of what is ignored."""
        for name in self.classes:
            yield '', name, self.counts[name]

    def add(self, image: str, annotation: Any, file: str = '', count: int = 1) -> None:
        """Add the annotation of an image, of which there must be one."""
        self.total += count
        self.samples.append(Sample(image, annotation, file, count))

    def leave_out(self, reason: str, count: int = 1, image: str = '') -> None:
        """Count annotations that are left out, and say why the image is."""
        self.annotations_out[reason] += count
        if image:
            self.images_out[image] = reason

    def settle(self, chosen: bool = False) -> None:
        """Divide the samples as folders, the form itself and lists say, in this order.

        Args:
            chosen: Whether the owner has given this file of annotations, so that all is trained on.

        Raises:
            DataError: An image has two annotations, sources disagree, or there is nothing to train on.
        """
        files: dict[str, str] = {}
        for sample in self.samples:
            if sample.image in files:
                both = f'{files[sample.image]} and {sample.file}'
                raise DataError(
                    f'{self.listing.root / sample.image} has two annotations, {both}: move one out, or give a folder '
                    'or a file that has one'
                )
            files[sample.image] = sample.file
        splits = {} if chosen else self._splits()
        names = {splits[sample.image][0] if sample.image in splits else None for sample in self.samples}
        test = 'val' if 'test' in names and 'val' not in names else 'test'
        divided: dict[str, list[Sample]] = {}
        for sample in self.samples:
            split = splits.get(sample.image, ('train' if names == {None} else NO_SPLIT, ''))[0]
            split = test if split == 'test' else split
            if split in ('train', 'val'):
                divided.setdefault(split, []).append(sample)
            else:
                self.leave_out({'test': 'for testing'}.get(split, split), sample.count, sample.image)
        if 'train' not in divided:
            only = ' and '.join(sorted(map(str, names - {None})))
            raise DataError(
                f'{self.listing.root} has annotated images for {only} only: give the folder or the file that is to '
                'be trained on'
            )
        unsplit = [image for image, reason in self.images_out.items() if reason == NO_SPLIT]
        if unsplit:
            self.notes.append(f'{len(unsplit)} annotated images are left out: {NO_SPLIT}, such as {unsplit[0]}')
        if test == 'val':
            self.notes.append('the images for testing stand for validation, for which there are no others')
        self.of_split = {split: divided[split] for split in ('train', 'val') if split in divided}
        self.summarise()

    def _splits(self) -> dict[str, tuple[str, str]]:
        splits: dict[str, tuple[str, str]] = {}
        files = [(sample.image, file) for sample in self.samples for file in (sample.image, sample.file)]
        for image, file in files if self.splits_by_folder else ():
            if split := split_of(file):
                add_split(splits, image, split, f'the folder of {file}')
        for source in (self.splits, listed_splits(self.listing, self.sets)):
            for image, (split, name) in source.items():
                add_split(splits, image, split, name)
        return splits

    def divide(self, tiling: Tiling | None, seed: int, single: bool = False) -> None:
        """Leave images, or an area of each large one of a few, out of training for validation if there is no split.

        Args:
            tiling: See the method of that name.
            seed: Of the division.
            single: Whether frames of one video are drawn one by one, too.

        Raises:
            DataError: There are fewer than ``LEAST``.
        """
        if 'val' in self.of_split:
            return
        if tiling and len(self.of_split['train']) < LEAST:
            self.divide_areas(seed)
            return
        samples, chosen, blocks = self.of_split['train'], set[str](), []
        for group in self.groups():
            if len(group) < LEAST:
                raise DataError(
                    f'{len(group)} images with labels: training and validation need {LEAST} at least, and a '
                    f'useful model forty or more{self.too_few}'
                )
            images = [sample.image for sample in group]
            clips = [
                [images[place] for place in clip]
                for clip in divide(images, list(map(self.labels, group)), seed, single)
            ]
            chosen |= {image for clip in clips for image in clip}
            blocks += [clip for clip in clips if len(clip) > 1]
        self.of_split = {
            split: [sample for sample in samples if (sample.image in chosen) == held]
            for split, held in (('train', False), ('val', True))
        }
        if blocks:
            shown = ', '.join(f'{clip[0]} to {PurePosixPath(clip[-1]).name}' for clip in blocks[:SHOWN])
            more = f' and {len(blocks) - SHOWN} more' * (len(blocks) > SHOWN)
            self.notes.append(
                f'images whose names differ by a running number alone stay together: {shown}{more} are for '
                'validation; --split random draws single images'
            )
        self.summarise()

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

    def groups(self) -> list[list[Sample]]:
        """Return the samples for training in groups of which each is divided."""
        return [self.of_split['train']]

    def books(self) -> list[Book]:
        """Return how many images and annotations there are, and what becomes of them."""
        used = {sample.image for samples in self.of_split.values() for sample in samples}
        images = [image for image in self.listing.images if image not in self.maps]
        left_out = Counter(self.images_out.get(image, 'no annotation') for image in images if image not in used)
        books = [Book('images', len(images), self.images(), left_out)]
        if self.unit:
            counts = {split: sum(sample.count for sample in samples) for split, samples in self.of_split.items()}
            books.append(Book(self.unit, self.total, counts, self.annotations_out))
        return books


def common_folder(files: Sequence[str]) -> str:
    """Return the folder that is or holds those of some files."""
    return posixpath.commonpath([posixpath.dirname(file) for file in files])


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
