"""Images and their label maps in a folder: which belong together, and under which names MMSegmentation finds them."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import Image

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import is_image
from mmlape.new.listing import Listing, split_of

LOSSLESS = ('.png', '.bmp', '.tif', '.tiff', '.gif')
MOST = 64
"""Colours or ids of an image that may be a label map."""
ENDING = re.compile(r'[ _.-]?(label|labels|labelids|labeltrainids|mask|masks|gt|seg|segmentation|annotation)$', re.I)
"""What follows the name of an image in the name of its map."""
HINT = re.compile(r'label|mask|annot|class|gt|seg', re.I)
"""In the names of folders of maps."""
LOOKED_AT = 3
"""Images of a folder that are opened to see whether they are label maps."""
COLOUR = 1 << 24
"""Is added to colours, so that none is taken for an id."""


@dataclass(frozen=True)
class Pair:
    """An image and its label map, as paths."""

    image: Path
    map: Path


class Layout(NamedTuple):
    """Folders, suffixes and names by which MMSegmentation finds images and label maps."""

    images: str
    maps: str
    image_suffix: str
    map_suffix: str
    names: list[str]


def find_pairs(listing: Listing) -> Iterator[Pair]:
    """Yield the images that have a label map: one of the same name but for ``ENDING``, in a folder of maps."""
    images: dict[str, dict[str, str]] = {}  # by folder and stem
    maps: dict[str, dict[str, str]] = {}
    for folder, files in listing.by_folder.items():
        names = list(filter(is_image, files))
        stems = Counter(os.path.splitext(name)[0] for name in names)
        for name in names:
            stem, suffix = os.path.splitext(name)
            plain = ENDING.sub('', stem)
            if plain != stem and plain in stems:
                maps.setdefault(folder, {})[plain] = name
            elif stems[stem] > 1 and suffix.lower() in LOSSLESS:
                maps.setdefault(folder, {})[stem] = name
            else:
                images.setdefault(folder, {})[stem] = name
    for folder in [one for one, names in images.items() if _are_maps(listing, one, names)]:
        found = {ENDING.sub('', stem): name for stem, name in images.pop(folder).items()}
        maps[folder] = found | maps.get(folder, {})
    for folder, by_stem in images.items():
        shared = {other: len(set(by_stem) & set(found)) for other, found in maps.items()}
        candidates = [other for other, count in shared.items() if count]
        if not candidates:
            continue
        best = max(candidates, key=lambda other: (_nearness(folder, other), shared[other]))
        for stem in sorted(set(by_stem) & set(maps[best])):
            image, label = f'{folder}/{by_stem[stem]}', f'{best}/{maps[best][stem]}'
            yield Pair(listing.root / image.lstrip('/'), listing.root / label.lstrip('/'))


def _nearness(images: str, maps: str) -> tuple[bool, int, int]:
    """Return how near a folder of maps is to one of images: same split, a name of maps, shared parts."""
    named = bool(HINT.search(PurePosixPath(maps).name)) + bool(HINT.search(maps))
    shared = set(PurePosixPath(images).parts) & set(PurePosixPath(maps).parts)
    return split_of(images) == split_of(maps), named, len(shared)


def _are_maps(listing: Listing, folder: str, names: dict[str, str]) -> bool:
    """Check whether the images of a folder are label maps: lossless, and of few values."""
    files = sorted(names.values())
    if not all(name.lower().endswith(LOSSLESS) for name in files):
        return False
    chosen = files[:: max(1, len(files) // LOOKED_AT)][:LOOKED_AT]
    return all(_is_map(listing.root / folder / name) for name in chosen)


def _is_map(path: Path) -> bool:
    try:
        return len(np.unique(read_values(path)[0])) <= MOST
    except DataError:
        return False


def read_values(path: Path) -> tuple[np.ndarray, bool]:
    """Read the pixels of a label map, (H, W): ids, and colours as ``COLOUR`` + 0xRRGGBB; grey ones are ids.

    Return with it whether training can read the file as it is: one channel of 8 bits.

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
    if values.ndim == 2:
        return values.astype(np.int64), values.dtype == np.uint8
    channels = values[..., :3].astype(np.int64)
    grey = (channels == channels[..., :1]).all(-1)
    colours = COLOUR + (channels << (16, 8, 0)).sum(-1)
    return np.where(grey, channels[..., 0], colours), False


def find_layout(pairs: list[Pair]) -> Layout | None:
    """Return how MMSegmentation finds these pairs; None if one suffix for images and one for maps do not do."""
    images = os.path.commonpath([pair.image.parent for pair in pairs])
    maps = os.path.commonpath([pair.map.parent for pair in pairs])
    suffix = pairs[0].image.suffix
    names = [os.path.relpath(pair.image, images) for pair in pairs]
    labels = [os.path.relpath(pair.map, maps) for pair in pairs]
    first = names[0].removesuffix(suffix)
    ending = labels[0].removeprefix(first)
    stems = [name.removesuffix(suffix) for name in names]
    fits = names == [stem + suffix for stem in stems] and labels == [stem + ending for stem in stems]
    return Layout(images, maps, suffix, ending, stems) if fits else None


def link(parts: dict[str, list[Pair]], folder: Path) -> dict[str, list[Pair]]:
    """Link images and maps to names with one suffix each; the readers of images go by their content."""
    every = [pair for pairs in parts.values() for pair in pairs]
    names = unique_names(every)
    suffix = Counter(pair.image.suffix for pair in every).most_common(1)[0][0]
    found: dict[str, list[Pair]] = {split: [] for split in parts}
    for split, pairs in parts.items():
        for pair in pairs:
            linked = Pair(folder / 'images' / f'{names[pair]}{suffix}', folder / 'labels' / f'{names[pair]}.png')
            for path, target in ((linked.image, pair.image), (linked.map, pair.map)):
                path.parent.mkdir(parents=True, exist_ok=True)
                if target.resolve() != path.resolve():
                    path.symlink_to(target.resolve())
            found[split].append(linked)
    return found


def unique_names(pairs: list[Pair]) -> dict[Pair, str]:
    """Return a name for each pair: its image's, with the folders where two are alike."""
    stems = Counter(pair.image.stem for pair in pairs)
    root = os.path.commonpath([pair.image.parent for pair in pairs])
    found = {}
    for pair in pairs:
        name = pair.image.stem
        if stems[name] > 1:
            name = re.sub(r'[/.]', '_', os.path.relpath(pair.image, root))
        found[pair] = name
    return found
