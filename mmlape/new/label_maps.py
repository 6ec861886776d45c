"""Images with label maps: what the pixels of the maps stand for, and the maps that training reads."""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image
from rich.progress import track

from mmlape.console import console
from mmlape.errors import DataError
from mmlape.files import atomic_path
from mmlape.lab.datasets.folders import read_names
from mmlape.new.found import CLASSES, Found, divide, image_sizes, require_enough
from mmlape.new.listing import Listing, split_of, train_and_val
from mmlape.new.pairs import COLOUR, Pair, find_layout, find_pairs, link, read_values, unique_names

IGNORED = 255
"""The id of pixels that are not learnt."""
MOST = 254
"""Ids that MMSegmentation has for classes."""
LISTS = ('classes.txt', 'labels.txt', 'class_names.txt')


@dataclass
class LabelMaps(Found):
    """Images with label maps.

    Args:
        parts: The pairs of each split; ``val`` is None if the data have none.
        numbers: The class of each value of the maps, -1 for none.
        plain: Whether all maps have one channel of 8 bits.
    """

    parts: dict[str, Any] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    plain: bool = True

    def images(self) -> dict[str, int]:
        """Count the images of each split."""
        return {split: len(pairs) for split, pairs in self.parts.items() if pairs}

    @property
    def image_folder(self) -> Path:
        """The folder of the images for training."""
        return Path(os.path.commonpath([pair.image.parent for pair in self.parts['train']]))

    def _fits(self, first: int) -> bool:
        """Whether training reads the maps as they are, where the ids of classes begin with ``first``."""
        return self.plain and all(
            number == value - first if value >= first and value != IGNORED else number == -1
            for value, number in self.numbers.items()
        )

    def prepare(self, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
        """Write lists of names, label maps if theirs are to be converted, and links if suffixes differ."""
        parts: dict[str, list[Pair]] = dict(self.parts)
        if parts['val'] is None:
            parts['train'], parts['val'] = divide(parts['train'], seed)
        reduce_zero_label = not self._fits(0) and self._fits(1)
        if not self._fits(0) and not reduce_zero_label:
            parts = self._convert(parts, folder)
        if not all(map(find_layout, parts.values())):
            parts = link(parts, folder)
        found = {}
        for split, pairs in parts.items():
            layout = find_layout(pairs)
            file = folder / f'{split}.txt'
            file.write_text('\n'.join(layout.names) + '\n', encoding='utf-8')
            found[split] = dict(
                type='BaseSegDataset',
                ann_file=str(file),
                data_prefix=dict(img_path=layout.images, seg_map_path=layout.maps),
                img_suffix=layout.image_suffix,
                seg_map_suffix=layout.map_suffix,
                reduce_zero_label=reduce_zero_label,
                metainfo=dict(classes=CLASSES),
            )
        return found

    def _convert(self, parts: dict[str, list[Pair]], folder: Path) -> dict[str, list[Pair]]:
        """Write label maps of ids, and return the pairs with them."""
        target = folder / 'labels'
        target.mkdir(parents=True, exist_ok=True)
        names = unique_names([pair for pairs in parts.values() for pair in pairs])
        found: dict[str, list[Pair]] = {split: [] for split in parts}
        for split, pairs in parts.items():
            for pair in track(pairs, f'{split} label maps', console=console()):
                values, _ = read_values(pair.map)
                ids = np.full(values.shape, IGNORED, np.uint8)
                for value, number in self.numbers.items():
                    ids[values == value] = number if number >= 0 else IGNORED
                path = target / f'{names[pair]}.png'
                with atomic_path(path) as partial:
                    Image.fromarray(ids).save(partial, format='png')
                found[split].append(Pair(pair.image, path))
        return found


def recognise(listing: Listing, names: Sequence[str] = (), background: bool | None = None) -> LabelMaps | None:
    """Return the images with label maps in a folder, or None if there are none.

    Args:
        listing: Its files.
        names: Of the classes, in the order of the ids; by default those of ``classes.txt``.
        background: Whether id 0 is a class of its own; by default it is, unless there is one id
            more than names.

    Raises:
        DataError: The maps have one id only, too many, or more than there are names.
    """
    groups: dict[str | None, list[Pair]] = defaultdict(list)
    alone = {listing.root / file for file in listing.images}
    for pair in find_pairs(listing):
        groups[split_of(str(pair.image.relative_to(listing.root)))].append(pair)
        alone -= {pair.image, pair.map}
    if not groups:
        return None
    parts = train_and_val(groups)
    if parts['val'] is None:
        require_enough(len(parts['train']))
    pairs = [pair for found in parts.values() if found for pair in found]
    pixels: Counter[int] = Counter()
    plain = True
    for pair in track(pairs, 'reading label maps', console=console()):
        values, is_plain = read_values(pair.map)
        plain &= is_plain
        pixels.update(dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)))))
        if len(pixels) > MOST + 2:
            raise DataError(
                f'{pair.map} and those before have {len(pixels)} different values: label maps have '
                f'the id of a class at each pixel, {MOST} at most, or a colour for each class'
            )
    given = tuple(names) or _listed(listing)
    classes, numbers = meaning(sorted(pixels), given, background, pairs[0].map)
    counts = Counter(dict.fromkeys(classes, 0))
    for value, number in numbers.items():
        if number >= 0:
            counts[classes[number]] += pixels[value]
    return LabelMaps(
        'segmentation',
        'label maps',
        classes,
        counts,
        image_sizes([pair.image for pair in parts['train']]),
        _notes(alone),
        parts=parts,
        numbers=numbers,
        plain=plain,
    )


def _notes(alone: set[Path]) -> list[str]:
    """Return what the owner should know of images that are in no pair."""
    if not alone:
        return []
    return [
        f'left out: {len(alone)} images without a label map of their name, or maps without an '
        f'image, such as {min(alone)}'
    ]


def _listed(listing: Listing) -> tuple[str, ...]:
    """Return the names of the classes that a file lists; none without one."""
    file = next((file for file in listing.files if PurePosixPath(file).name in LISTS), None)
    return read_names(listing.root / file) if file else ()


def meaning(
    values: list[int], names: tuple[str, ...], background: bool | None, example: Path
) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the names of the classes, and the class of each value, -1 for none.

    Args:
        values: Of all maps, as `read_values` has them, in order.
        names: Of classes; () if they are not known.
        background: As in `recognise`.
        example: A map, for messages.

    Raises:
        DataError: There is one id only, or there are more ids than names.
    """
    if values == [0, IGNORED]:
        found = names if len(names) == 2 else ('background', *(names[:1] or ('object',)))
        return found, {0: 0, IGNORED: 1}
    of_colours = values[-1] >= COLOUR
    numbers = dict.fromkeys(values, -1)
    learnt = [value for value in values if of_colours or value != IGNORED]
    if background is False:
        learnt = [value for value in learnt if value]
    if len(learnt) < 2:
        raise DataError(
            f'{example} and the other label maps have the id {learnt[0] if learnt else IGNORED} '
            'only: there is nothing to choose from; give maps with two ids at least'
        )
    if of_colours or (names and len(names) == len(learnt)):
        numbers |= {value: number for number, value in enumerate(learnt)}
        return names if len(names) == len(learnt) else tuple(map(_name, learnt)), numbers
    if names:
        if background and learnt[-1] == len(names):
            names = ('background', *names)
        first = int(background is False or learnt[-1] >= len(names))
        if learnt[-1] - first >= len(names):
            raise DataError(
                f'{example} and other label maps have ids up to {learnt[-1]}, but there are '
                f'{len(names)} names of classes: give a name for each id, from 0, or from 1 if 0 is '
                'no label'
            )
        return names, numbers | {value: value - first for value in learnt if value >= first}
    numbers |= {value: number for number, value in enumerate(learnt)}
    is_dense = learnt[-1] - learnt[0] == len(learnt) - 1 and learnt[0] < 2
    return tuple(f'{"class" if is_dense else "id"} {value}' for value in learnt), numbers


def _name(value: int) -> str:
    """Return the name of a colour, as of a class that has none."""
    if value < COLOUR:
        return f'grey {value}' if value else 'background'
    rest = value - COLOUR
    return f'colour {rest >> 16} {rest >> 8 & 255} {rest & 255}'
