"""Images with label maps: which belong together, and what the pixels of the maps stand for."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image
from rich.progress import track

from mmlape.console import console
from mmlape.errors import DataError
from mmlape.files import atomic_path
from mmlape.lab.datasets.folders import is_image
from mmlape.lab.datasets.sources import read_names
from mmlape.new.found import CLASSES, Found, divide, image_sizes, require_enough
from mmlape.new.listing import Listing, split_of, train_and_val

LOSSLESS = ('.png', '.bmp', '.tif', '.tiff', '.gif')
IGNORED = 255
"""The id of pixels that are not learnt."""
MOST = 64
"""Colours or ids of an image that may be a label map."""
ENDING = re.compile(
    r'[ _.-]?(label|labels|labelids|labeltrainids|mask|masks|gt|seg|segmentation|annotation)$', re.I
)
"""What follows the name of an image in the name of its map."""
HINT = re.compile(r'label|mask|annot|class|gt|seg', re.I)
LISTS = ('classes.txt', 'labels.txt', 'class_names.txt')
LOOKED_AT = 3


@dataclass(frozen=True)
class Pair:
    """An image and its label map, as paths."""

    image: Path
    map: Path


@dataclass
class LabelMaps(Found):
    """Images with label maps.

    Args:
        parts: The pairs of each split; ``val`` is None if the data have none.
        coding: What the pixels are: ids by colour (three numbers) or by id (one), -1 for ignored.
            None if the files can be trained on as they are.
        reduce_zero_label: Whether 0 is no label, and the classes begin with 1.
    """

    parts: dict[str, list[Pair] | None] = None  # type: ignore[assignment]
    coding: dict[tuple[int, ...], int] | None = None
    reduce_zero_label: bool = False

    def images(self) -> dict[str, int]:
        """Count the images of each split."""
        return {split: len(pairs) for split, pairs in self.parts.items() if pairs}

    @property
    def image_folder(self) -> Path:
        """The folder of the images for training."""
        return Path(os.path.commonpath([pair.image.parent for pair in self.parts['train']]))

    def prepare(self, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
        """Write lists of names, label maps if theirs are to be converted, and links if suffixes differ."""
        parts = dict(self.parts)
        if parts['val'] is None:
            parts['train'], parts['val'] = divide(parts['train'], seed)
        if self.coding is not None:
            parts = self._converted(parts, folder)
        layouts = {split: _layout(pairs) for split, pairs in parts.items()}
        if None in layouts.values():
            parts = _linked(parts, folder)
            layouts = {split: _layout(pairs) for split, pairs in parts.items()}
        found = {}
        for split, (images, maps, image_suffix, map_suffix, names) in layouts.items():
            file = folder / f'{split}.txt'
            file.write_text('\n'.join(names) + '\n', encoding='utf-8')
            found[split] = dict(
                type='BaseSegDataset',
                ann_file=str(file),
                data_prefix=dict(img_path=images, seg_map_path=maps),
                img_suffix=image_suffix,
                seg_map_suffix=map_suffix,
                reduce_zero_label=self.reduce_zero_label,
                metainfo=dict(classes=CLASSES),
            )
        return found

    def _converted(self, parts: dict[str, list[Pair]], folder: Path) -> dict[str, list[Pair]]:
        """Write label maps of ids, and return the pairs with them."""
        target = folder / 'labels'
        target.mkdir(parents=True, exist_ok=True)
        names = _names([pair for pairs in parts.values() for pair in pairs])
        found: dict[str, list[Pair]] = {}
        for split, pairs in parts.items():
            found[split] = []
            for pair in track(pairs, f'{split} label maps', console=console()):
                path = target / f'{names[pair]}.png'
                ids = _coded(_pixels(pair.map), self.coding)
                with atomic_path(path) as partial:
                    Image.fromarray(ids).save(partial, format='png')
                found[split].append(Pair(pair.image, path))
        return found


def recognise(
    listing: Listing, names: Sequence[str] = (), background: bool | None = None
) -> LabelMaps | None:
    """Return the images with label maps in a folder, or None if there are none.

    Args:
        listing: Its files.
        names: Of the classes, in the order of the ids; by default those of ``classes.txt``.
        background: Whether id 0 is a class of its own; by default it is, unless there is one name
            less than ids.

    Raises:
        DataError: The maps have one id only, too many, or more than the names.
    """
    groups: dict[str | None, list[Pair]] = defaultdict(list)
    for pair in _pairs(listing):
        groups[split_of(str(pair.image.relative_to(listing.root)))].append(pair)
    if not groups:
        return None
    parts = train_and_val(dict(groups))
    if parts['val'] is None:
        require_enough(len(parts['train']))
    pairs = [pair for found in parts.values() if found for pair in found]
    counts = Counter()
    for pair in track(pairs, 'reading label maps', console=console()):
        counts.update(_values(_pixels(pair.map)))
        if len(counts) > 4096:
            break
    found = _meaning(counts, tuple(names) or _listed(listing), background, pairs[0].map)
    return LabelMaps(
        'segmentation',
        'label maps',
        sizes=image_sizes([pair.image for pair in parts['train']]),
        parts=parts,
        **found,
    )


def _pairs(listing: Listing) -> Iterator[Pair]:
    """Yield the images that have a label map: one of the same name but for `ENDING`, in a folder of maps."""
    images: dict[str, dict[str, str]] = {}  # by folder and stem
    maps: dict[str, dict[str, str]] = {}
    for folder, names in listing.by_folder.items():
        for name in filter(is_image, names):
            stem, suffix = os.path.splitext(name)
            plain = ENDING.sub('', stem)
            paired = plain != stem and any(
                other.startswith(f'{plain}.') and is_image(other) for other in names
            )
            twin = suffix.lower() in LOSSLESS and any(
                other != name and os.path.splitext(other)[0] == stem
                for other in names
                if is_image(other)
            )
            is_map = paired or twin
            (maps if is_map else images).setdefault(folder, {})[plain if is_map else stem] = name
    candidates = {
        folder: names for folder, names in images.items() if _are_maps(listing, folder, names)
    }
    for folder, names in candidates.items():
        plain = {ENDING.sub('', stem): name for stem, name in names.items()}
        maps[folder] = plain | maps.get(folder, {})
        del images[folder]
    for folder, names in images.items():
        shared = {other: len(set(names) & set(found)) for other, found in maps.items()}
        shared = {other: count for other, count in shared.items() if count}
        if not shared:
            continue
        best = max(shared, key=lambda other: (_relation(folder, other), shared[other]))
        for stem, name in names.items():
            if stem in maps[best]:
                yield Pair(listing.root / folder / name, listing.root / best / maps[best][stem])


def _relation(images: str, maps: str) -> tuple[int, int, int]:
    """Return how near a folder of maps is to one of images: same split, a name of maps, shared parts."""
    same = split_of(images) == split_of(maps)
    shared = set(PurePosixPath(images).parts) & set(PurePosixPath(maps).parts)
    return same, bool(HINT.search(maps.rpartition('/')[2])) + bool(HINT.search(maps)), len(shared)


def _are_maps(listing: Listing, folder: str, names: dict[str, str]) -> bool:
    """Check whether the images of a folder are label maps: lossless, and of few values."""
    files = sorted(names.values())
    if not all(name.lower().endswith(LOSSLESS) for name in files):
        return False
    chosen = files[:: max(1, len(files) // LOOKED_AT)][:LOOKED_AT]
    return all(_is_map(listing.root / folder / name) for name in chosen)


def _is_map(path: Path) -> bool:
    try:
        return len(_values(_pixels(path))) <= MOST
    except DataError:
        return False


def _pixels(path: Path) -> np.ndarray:
    """Read a label map, (H, W) of ids or (H, W, 3) of colours.

    Raises:
        DataError: It cannot be read, or has floats.
    """
    try:
        with Image.open(path) as image:
            if image.mode in ('RGBA', 'CMYK', 'YCbCr', 'LA'):
                image = image.convert('L' if image.mode == 'LA' else 'RGB')
            values = np.asarray(image)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f'label map {path} cannot be read: {error}') from error
    if values.dtype.kind not in 'biu':
        raise DataError(f'label map {path} has pixels that are no integers')
    return values.astype(np.uint8) if values.dtype == bool else values


def _values(pixels: np.ndarray) -> Counter[tuple[int, ...]]:
    """Count the ids or colours of a label map."""
    rows = pixels.reshape(-1, pixels.shape[2] if pixels.ndim == 3 else 1).astype(np.int64)
    packed = rows[:, 0] if rows.shape[1] == 1 else (rows << (16, 8, 0)).sum(1)
    found, counts = np.unique(packed, return_counts=True)
    if rows.shape[1] == 1:
        return Counter({(int(value),): int(count) for value, count in zip(found, counts)})
    return Counter(
        {
            (int(value) >> 16, int(value) >> 8 & 255, int(value) & 255): int(count)
            for value, count in zip(found, counts)
        }
    )


def _coded(pixels: np.ndarray, coding: dict[tuple[int, ...], int]) -> np.ndarray:
    """Return the ids of a label map, (H, W) of uint8."""
    ids = np.full(pixels.shape[:2], IGNORED, np.uint8)
    for value, number in coding.items():
        if number >= 0:
            same = pixels == (value if pixels.ndim == 3 else value[0])
            ids[same.all(-1) if pixels.ndim == 3 else same] = number
    return ids


def _listed(listing: Listing) -> tuple[str, ...]:
    """Return the names of the classes that a file lists; none without one."""
    file = next((file for file in listing.files if PurePosixPath(file).name in LISTS), None)
    return read_names(listing.root / file) if file else ()


def _meaning(
    counts: Counter[tuple[int, ...]], names: tuple[str, ...], background: bool | None, example: Path
) -> dict[str, Any]:
    """Return classes, coding and counts of what the pixels of all maps are."""
    colours = [value for value in counts if len(value) == 3]
    if colours and all(len(set(value)) == 1 for value in colours):  # grey, in three channels
        grey = Counter[tuple[int, ...]]()
        for value, count in counts.items():
            grey[(value[0],)] += count
        found = _meaning(grey, names, background, example)
        coding = found['coding'] or {value: value[0] - found['reduce_zero_label'] for value in grey}
        coding = {
            value: number if value != (IGNORED,) or number >= 0 else -1
            for value, number in coding.items()
        }
        triple = {value * 3: number for value, number in coding.items()}
        return found | dict(coding=triple | coding, reduce_zero_label=False)
    if len(counts) > 254:
        raise DataError(
            f'{example} and others have {len(counts)} or more different values: label maps have the '
            'id of a class at each pixel, 254 at most, or a colour for each class'
        )
    if colours:
        order = sorted(counts, key=lambda value: (len(value) == 3 and any(value), value))
        return _by_coding(order, counts, names, [_colour_name(value) for value in order])
    ids = sorted(value[0] for value in counts)
    labels = [number for number in ids if number != IGNORED]
    if ids == [0, IGNORED]:
        own = names if len(names) == 2 else ('background', names[0] if names else 'object')
        return _result(own, {(0,): 0, (IGNORED,): 1}, counts)
    if len(labels) < 2:
        raise DataError(
            f'{example} and the other label maps have the id {labels[0] if labels else IGNORED} '
            'only: there is nothing to choose from; give maps with two ids at least'
        )
    if background is None and names:
        background = max(labels) < len(names)
    classes = names if background or background is None else ('no label', *names)
    if background and len(names) == max(labels):
        classes = ('background', *names)
    if classes and max(labels) >= len(classes) and max(labels) < 255:
        raise DataError(
            f'{example} and other label maps have ids up to {max(labels)}, but there are '
            f'{len(names)} names of classes: give a name for each id, from 0, or from 1 if 0 is no label'
        )
    if not classes and labels == list(range(len(labels))):
        classes = tuple(
            'background' if not number and background else f'class {number}' for number in labels
        )
    if not classes:
        order = [(number,) for number in ids if background is not False or number]
        return _by_coding(order, counts, (), [f'id {value[0]}' for value in order])
    coding = {(number,): number for number in labels} | {(IGNORED,): -1}
    if background is False:
        found = _result(
            classes[1:], {value: number - 1 for value, number in coding.items()}, counts
        )
        return found | dict(coding=None, reduce_zero_label=True)
    return _result(classes, coding, counts) | dict(coding=None)


def _by_coding(
    order: list[tuple[int, ...]],
    counts: Counter[tuple[int, ...]],
    names: tuple[str, ...],
    own: list[str],
) -> dict[str, Any]:
    """Return what values mean that are numbered in their order; 255 is ignored."""
    order = [value for value in order if value != (IGNORED,)]
    own = own[: len(order)]
    classes = names if len(names) == len(order) else tuple(own)
    if len(names) == len(order) - 1 and not any(order[0]):
        classes = ('background', *names)
    coding = {value: number for number, value in enumerate(order)}
    return _result(classes, coding | {(IGNORED,): -1}, counts)


def _result(
    classes: tuple[str, ...],
    coding: dict[tuple[int, ...], int],
    counts: Counter[tuple[int, ...]],
) -> dict[str, Any]:
    found: Counter[str] = Counter(dict.fromkeys(classes, 0))
    for value, count in counts.items():
        number = coding.get(value, -1)
        if 0 <= number < len(classes):
            found[classes[number]] += count
    return dict(classes=tuple(classes), counts=found, coding=coding, reduce_zero_label=False)


def _colour_name(value: tuple[int, ...]) -> str:
    return 'colour {} {} {}'.format(*value) if any(value) else 'background'


def _layout(pairs: list[Pair]) -> tuple[str, str, str, str, list[str]] | None:
    """Return folders, suffixes and names by which MMSegmentation finds all pairs; None if it cannot."""
    images = os.path.commonpath([pair.image.parent for pair in pairs])
    maps = os.path.commonpath([pair.map.parent for pair in pairs])
    suffix = pairs[0].image.suffix
    first = os.path.relpath(pairs[0].image, images).removesuffix(suffix)
    ending = os.path.relpath(pairs[0].map, maps)
    if not ending.startswith(first):
        return None
    ending = ending.removeprefix(first)
    names = []
    for pair in pairs:
        name = os.path.relpath(pair.image, images)
        if not name.endswith(suffix):
            return None
        name = name.removesuffix(suffix)
        if os.path.relpath(pair.map, maps) != name + ending:
            return None
        names.append(name)
    return images, maps, suffix, ending, names


def _linked(parts: dict[str, list[Pair]], folder: Path) -> dict[str, list[Pair]]:
    """Link images and maps to names with one suffix each, as MMSegmentation reads; readers go by content."""
    names = _names([pair for pairs in parts.values() for pair in pairs])
    suffix = Counter(pair.image.suffix for pairs in parts.values() for pair in pairs).most_common(
        1
    )[0][0]
    found: dict[str, list[Pair]] = {}
    for split, pairs in parts.items():
        found[split] = []
        for pair in pairs:
            image, label = (
                folder / 'images' / f'{names[pair]}{suffix}',
                folder / 'labels' / f'{names[pair]}.png',
            )
            for link, target in ((image, pair.image), (label, pair.map)):
                link.parent.mkdir(parents=True, exist_ok=True)
                if target.resolve() != link.resolve():
                    link.unlink(missing_ok=True)
                    link.symlink_to(target.resolve())
            found[split].append(Pair(image, label))
    return found


def _names(pairs: list[Pair]) -> dict[Pair, str]:
    """Return a name for each pair that no other has: the image's, with its folders where two are alike."""
    stems = Counter(pair.image.stem for pair in pairs)
    root = os.path.commonpath([pair.image.parent for pair in pairs])
    found = {}
    for pair in pairs:
        name = pair.image.stem
        if stems[name] > 1:
            name = os.path.relpath(pair.image, root).replace(os.sep, '_').replace('.', '_')
        found[pair] = name
    return found
