"""Images with label maps: which files belong together, what the pixels stand for, and the maps that training reads."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from rich.progress import track

from mmlape.console.terminal import console
from mmlape.errors import DataError
from mmlape.files import atomic_path
from mmlape.lab.datasets.folders import read_lines
from mmlape.lab.datasets.images import Size, open_header, open_image
from mmlape.lab.inference.tiling import Tiling
from mmlape.new.class_names import COLOUR, IGNORED, NONE, NOTHING, Names, describe, meaning, rgb
from mmlape.new.found_data import CLASSES, PALETTE, Found, Part, Sample, common_folder
from mmlape.new.listing import Listing, folder_and_stem, match_images

MOST = 254
"""Ids that MMSegmentation has for classes."""
LOSSLESS = ('.png', '.bmp', '.tif', '.tiff', '.gif')
FEW = 64
"""Values of an image that may be a label map."""
LOOKED_AT = 3
"""Images of a kind in a folder that are opened to see whether they are label maps."""
LARGE = 1024
"""Pixels of the shorter side up to which a scene is resized, and learnt as a whole."""
STRIP = 1 << 22
"""Pixels that are read at once."""
OF_IMAGES = re.compile(r'_leftImg8bit$')
OF_MAPS = re.compile(
    r'(_gt(Fine|Coarse)_\w+|[ _.-]L|[ _.-]?(labels?|label(train)?ids|masks?|gt|seg|segmentation|annotation))$', re.I
)
"""What follows the name that an image and its map have in common."""
HINT = re.compile(r'label|mask|annot|gt|seg', re.I)
"""In the names of folders of maps."""
OTHER = re.compile(r'(instance(Ids)?|color|SegmentationObject)$')
"""Of maps that stand beside those of the classes: of single objects, or to be looked at."""
COLOURS = ('label_colors.txt', 'class_dict.csv', 'labelmap.txt', '_classes.csv')
"""Files that name the colours or the numbers of maps."""
MUCH = 0.5
"""Share of pixels without a label above which the owner is warned."""
NO_DATA = 42113
"""GDAL's tag of TIFF for the value of pixels without data."""


@dataclass
class LabelMaps(Found):
    """Images with label maps: an annotation is the path of the map."""

    unit: ClassVar[str] = 'label maps'
    sets: ClassVar[str] = 'Segmentation'
    names: Names = NONE
    background: bool | None = None
    pixels: Counter[int] = field(default_factory=Counter)  # of each value in training
    numbers: dict[int, int] = field(default_factory=dict)  # the class of each value, -1 for none
    plain: bool = True  # whether all maps have one channel of 8 bits
    read: dict[tuple[str, Part | None], Counter[int]] = field(default_factory=dict)  # pixels of each value in a map
    seen: set[int] = field(default_factory=set)  # values of all maps
    shown: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)  # colours of a value in the files' palettes

    def summarise(self) -> None:
        """Read all label maps, and count what is in those for training."""
        for split, samples in self.of_split.items():
            unread = [sample for sample in samples if (sample.file, sample.part) not in self.read]
            for sample in track(unread, f'reading {split} label maps', console=console()) if unread else ():
                self._read(sample)
        self.classes, self.numbers = meaning(sorted(self.seen), self.names, self.background)
        self.palette = self._colours()
        trained = self.of_split['train']
        self.pixels = sum((self.read[sample.file, sample.part] for sample in trained), Counter[int]())
        self.counts = Counter[str]()
        for value, number in self.numbers.items():
            if number >= 0:
                self.counts[self.classes[number]] += self.pixels[value]

    def _read(self, sample: Sample) -> None:
        """Count the values of a label map, and keep the colours that it shows its ids in."""
        file = self.listing.root / sample.file
        values = self.read[sample.file, sample.part] = Counter[int]()
        for strip, plain in self._strips(file, sample.part):
            self.plain &= plain
            values.update(_count(strip))
        self.seen |= values.keys()
        if len(self.seen) > MOST + 2:
            raise DataError(
                f'{file} and those before have {len(self.seen)} different values: label maps have '
                f'the id of a class at each pixel, {MOST} at most, or a colour for each class'
            )
        with open_header(file) as image:
            palette = image.getpalette() or []
        for value in values:
            colour = palette[3 * value : 3 * value + 3] if value >= 0 else []
            self.shown.setdefault(value, set()).add(tuple(colour))

    def _strips(self, file: Path, part: Part | None = None) -> Iterator[tuple[np.ndarray, bool]]:
        """Read a label map; what its file calls no data is a value, if the owner names it or its background."""
        return read_strips(file, part, {*self.names.by_value} | ({0} if self.background else set()))

    def _colours(self) -> list[list[int]]:
        """Return the colour of each class, as the values or the files' palettes have it; none if one lacks it."""
        of_class: dict[int, tuple[int, ...]] = {}
        for value, number in self.numbers.items():
            of_map = self.shown.get(value, set())
            colour = rgb(value) if max(self.numbers) >= COLOUR else next(iter(of_map)) if len(of_map) == 1 else ()
            of_class.setdefault(number, tuple(colour))
        colours = [list(of_class.get(number, ())) for number in range(len(self.classes))]
        is_grey = all(len({*colour}) == 1 for colour in colours)  # an order of ids, no colours
        return [] if is_grey or not all(colours) else colours

    def labels(self, sample: Sample) -> set[str]:
        """Return the classes in an image."""
        numbers = {self.numbers[value] for value in self.read[sample.file, sample.part]} - {-1}
        return {self.classes[number] for number in numbers}

    def remarks(self) -> list[str]:
        """Return what the owner should know, a sentence each."""
        ignored = sum(self.pixels[value] for value, number in self.numbers.items() if number < 0)
        share = ignored / self.pixels.total()
        warning = (
            f'warning: {share:.1%} of the pixels are ignored: nothing is learnt of them, and no score counts them'
        )
        return super().remarks() + [warning] * (share > MUCH)

    def tiling(self, side: int) -> Tiling | None:
        """Return windows of images whose shorter side is above ``LARGE`` and twice the side; tiles share a third."""
        shorter = median(map(min, self.sizes() or [(side, side)]))
        return Tiling(side, side // 3) if shorter > max(LARGE, 2 * side) else None

    def annotated(self, sample: Sample) -> Size:
        """Return the size of a label map."""
        with open_header(self.listing.root / sample.file) as image:
            return image.size

    def write_part(self, sample: Sample, part: Part, root: Path, name: str) -> Sample:
        """Write a part of an image, and of its label map as ids of classes."""
        labels = f'labels/{name}'
        self._convert(self.listing.root / sample.file, root / labels, part)
        return replace(super().write_part(sample, part, root, f'images/{name}'), file=labels)

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Yield the number or the colour, the name and the pixels of each class, and those that are ignored."""
        keys = {number: value for value, number in self.numbers.items() if number >= 0}
        for number, name in enumerate(self.classes):
            yield describe(keys[number]), name, self.counts[name]
        for value, number in self.numbers.items():
            if number < 0:
                yield describe(value), '(ignored)', self.pixels[value]

    def prepare(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write lists of names; link images, and label maps that have ids, to one suffix each, and convert others."""
        root, parts = self.written(folder)
        images = [sample.image for samples in parts.values() for sample in samples]
        shared, root = common_folder(images) or '.', root.resolve()
        suffix = Counter(PurePosixPath(image).suffix for image in images).most_common(1)[0][0]
        are_ids = self.plain and all(
            number == (-1 if value == IGNORED else value) for value, number in self.numbers.items()
        )
        datasets = {}
        for split, samples in parts.items():
            names = [str(PurePosixPath(sample.image).relative_to(shared).with_suffix('')) for sample in samples]
            for name, sample in track(list(zip(names, samples)), f'{split} label maps', console=console()):
                # readers of images go by their content
                image, labels = folder / 'images' / f'{name}{suffix}', folder / 'labels' / f'{name}.png'
                for path in (image, labels):
                    path.parent.mkdir(parents=True, exist_ok=True)
                image.symlink_to(root / sample.image)
                if are_ids or sample.part:
                    labels.symlink_to(root / sample.file)
                else:
                    self._convert(root / sample.file, labels)
            file = folder / f'{split}.txt'
            file.write_text('\n'.join(names) + '\n', encoding='utf-8')
            datasets[split] = dict(
                type='BaseSegDataset',
                ann_file=str(file),
                data_prefix=dict(img_path=str(folder / 'images'), seg_map_path=str(folder / 'labels')),
                img_suffix=suffix,
                seg_map_suffix='.png',
                metainfo=dict(classes=CLASSES) | (dict(palette=PALETTE) if self.palette else {}),
            )
        return datasets

    def _convert(self, file: Path, target: Path, part: Part | None = None) -> None:
        """Write a label map of ids."""
        values = np.array(sorted(self.numbers))
        ids = np.array([self.numbers[value] for value in values.tolist()]) % (IGNORED + 1)  # -1: 255
        strips = [ids.astype(np.uint8)[np.searchsorted(values, strip)] for strip, _ in self._strips(file, part)]
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(target) as partial:
            Image.fromarray(np.concatenate(strips)).save(partial, format='png')


def recognise(listing: Listing, names: Names = NONE, background: bool | None = None) -> LabelMaps:
    """Return the images with label maps in a folder: a map has the name of its image, but for ``OF_MAPS``.

    Args:
        listing: Its files.
        names: Of the classes; by default those of a list in the folder.
        background: Whether 0 is a class that has no name; by default it is.
    """
    data = LabelMaps('segmentation', 'label maps', listing, names=names, background=background, is_named=False)
    kinds: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for image in listing.images:
        folder, stem = folder_and_stem(image)
        ending = OF_MAPS.search(stem)
        kinds[folder, ending[0] if ending else '', PurePosixPath(image).suffix.lower()].append(image)
    of_maps = [kind for kind, files in kinds.items() if kind[2] in LOSSLESS and _are_maps(listing, files)]
    hinted = [kind for kind in kinds if kind[1] or HINT.search(PurePosixPath(kind[0]).name)]
    lossy = [kind for kind in hinted if kind[2] in ('.jpg', '.jpeg')]
    images = [image for kind, files in kinds.items() if kind not in of_maps + lossy for image in files]
    for kind in lossy:
        files = match_images(kinds[kind], images, _common)
        if all(files.values()):
            raise DataError(
                f'{listing.root / kinds[kind][0]} has the name of a label map, and is a JPEG, whose compression '
                'changes label ids: write it as PNG, from the labels before they were compressed'
            )
    of_image: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for kind in of_maps:
        for file, matches in match_images(kinds[kind], images, _common).items():
            data.maps.add(file)
            data.images_out |= dict.fromkeys(matches[1:], 'the same image in another file')
            if matches:
                of_image[matches[0]].append((_rank(kind), file))
            else:
                data.total += 1
                data.leave_out('no image of this name')
    for image, ranked in of_image.items():
        least = min(ranked)[0]
        for rank, file in ranked:
            if rank == least:
                data.add(image, file, file)
            else:
                data.total += 1
                data.leave_out('beside the map of the classes')
    if not data.samples:
        data.maps.clear()
    elif not names:
        data.names = _listed(listing)
    return data


def _listed(listing: Listing) -> Names:
    """Return the names of a list of classes, of numbers or of colours; none without one.

    Raises:
        DataError: Two files give different ones.
    """
    files = [file for file in listing.files if PurePosixPath(file).name in COLOURS]
    lists = {file: dict(Names.of_lines(read_lines(listing.root / file)).by_value) for file in files}
    for file, names in lists.items():
        if names != lists[files[0]]:
            raise DataError(f'{listing.root}: {files[0]} and {file} name the classes differently: remove one')
    return Names(lists[files[0]], source=files[0]) if files else Names({}, *listing.class_list())


def _common(stem: str) -> str:
    return OF_MAPS.sub('', OF_IMAGES.sub('', stem))


def _rank(kind: tuple[str, str, str]) -> int:
    """Return which of several maps of an image is that of the classes, the first one: Cityscapes' for training."""
    folder, ending, _ = kind
    if OTHER.search(ending) or OTHER.search(folder):
        return 2
    return int(ending.endswith('labelIds'))


def _are_maps(listing: Listing, files: Sequence[str]) -> bool:
    """Check whether images are label maps, by the values of a few that can be read."""
    few = []
    for file in files[:: max(1, len(files) // LOOKED_AT)][:LOOKED_AT]:
        try:
            values: set[int] = set()
            for strip, _ in read_strips(listing.root / file):
                values |= _count(strip).keys()
                if len(values) > FEW:
                    break
            few.append(len(values) <= FEW)
        except DataError:
            continue
    return bool(few) and all(few)


def read_strips(
    path: Path, part: Part | None = None, named: Collection[int] = ()
) -> Iterator[tuple[np.ndarray, bool]]:
    """Read the pixels of a label map, (rows, W): ids, and colours as ``COLOUR`` + 0xRRGGBB; grey ones are ids.

    What the file calls no data is ``NOTHING``. Yield with them whether training can read the file as it is: one
    channel of 8 bits, with data everywhere.

    Args:
        path: The file.
        part: Of the map; None for all of it.
        named: Values that are data, whatever the file says.

    Raises:
        DataError: It cannot be read, or has floats.
    """
    with open_image(str(path)) as image:
        nothing, by_colour = _no_data(image), any(value >= COLOUR for value in named)
        rows = max(1, STRIP // image.width)
        left, first, right, last = part or (0, 0, *image.size)
        for top in range(first, last, rows):
            strip = image.crop((left, top, right, min(top + rows, last)))
            if image.mode in ('RGBA', 'CMYK', 'YCbCr', 'LA', 'PA') or (image.mode == 'P' and by_colour):
                strip = strip.convert('L' if image.mode == 'LA' else 'RGB')
            values = np.asarray(strip)
            if values.dtype.kind not in 'biu':
                raise DataError(f'label map {path} has pixels that are no integers')
            if values.ndim == 3:
                values = values.astype(np.int64)
                grey = (values == values[..., :1]).all(-1)
                values = np.where(grey, values[..., 0], COLOUR + (values << (16, 8, 0)).sum(-1))
            if nothing is not None and nothing not in named and (empty := values == nothing).any():
                values = np.where(empty, NOTHING, values.astype(np.int64))
            yield values, values.dtype == np.uint8


def _no_data(image: Image.Image) -> float | None:
    """Return the value of pixels without data that the tag of a TIFF names."""
    try:
        return float(str(getattr(image, 'tag_v2', {}).get(NO_DATA)).strip(' \0'))
    except ValueError:
        return None


def _count(values: np.ndarray) -> dict[int, int]:
    if values.dtype == np.uint8:
        counts = np.bincount(values.ravel())
        return {int(value): int(counts[value]) for value in counts.nonzero()[0]}
    return dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True))))
