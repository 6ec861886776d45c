"""The division of images into training and validation, where frames of one video stay together.

Frames are near copies of their neighbours: a model that has learnt one knows the next. Images whose names differ by a
running number alone are taken for frames of one clip.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mmlape.new.listing import folder_and_stem

SHARE = 0.2
"""Of the images, for validation."""
TRIES = 16
"""Divisions of which the first one is taken that has most classes in both parts."""
ADDED = re.compile(r'^[0-9a-f]{8}-|_(jpe?g|png|bmp)\.rf\.\w+$')
"""What Label Studio and Roboflow add to the name of an image."""


def find_clips(images: Sequence[str]) -> list[list[int]]:
    """Return the places of the images of each clip, in the order of their numbers; other images are a clip each.

    The running number is the last one that differs among names of a folder that have all but their numbers in common.
    """
    alike = defaultdict(list)
    for place, image in enumerate(images):
        folder, stem = folder_and_stem(image)
        words = re.split('([0-9]+)', ADDED.sub('', stem))
        alike[(folder, *words[::2])].append((words[1::2], place))
    clips = defaultdict(list)
    for key, rows in alike.items():
        differ = [len({*column}) > 1 for column in zip(*(numbers for numbers, _ in rows))]
        last = max((place for place, one in enumerate(differ) if one), default=-1)
        for numbers, place in rows:
            running = int(numbers[last]) if last >= 0 else 0
            clips[(key, *numbers[: max(last, 0)])].append((running, place))
    return [[place for _, place in sorted(clip)] for clip in clips.values()]


def divide(images: Sequence[str], labels: Sequence[set[str]], seed: int, single: bool = False) -> list[list[int]]:
    """Return the places of the images for validation: complete clips, or a block of each where none is small enough.

    Args:
        images: Their paths.
        labels: The classes in each image.
        seed: Of the choice of clips.
        single: Whether images are drawn one by one, however they are called.
    """
    count, generator = max(1, round(SHARE * len(images))), random.Random(seed)
    if single:
        return [[place] for place in generator.sample(range(len(images)), count)]
    clips = find_clips(images)
    orders = [generator.sample(clips, len(clips)) for _ in range(TRIES)]
    complete = [chosen for order in orders if (chosen := _complete(order, count, len(images)))]

    def classes_in_both(chosen: list[list[int]]) -> tuple[int, int]:
        held = {place for clip in chosen for place in clip}
        trained = {*range(len(images))} - held
        return len(_union(labels, trained)), len(_union(labels, held))

    return max([*complete, *_blocks(clips)], key=classes_in_both)


def _union(labels: Sequence[set[str]], places: Iterable[int]) -> set[str]:
    return {label for place in places for label in labels[place]}


def _complete(clips: Sequence[list[int]], count: int, total: int) -> list[list[int]]:
    """Return the first clips that are a count of images together, or the next best one; none if all are too large."""
    chosen: list[list[int]] = []
    for clip in clips:
        if sum(map(len, chosen)) + len(clip) <= count:
            chosen.append(clip)
    if 2 * sum(map(len, chosen)) >= count:
        return chosen
    others = [clip for clip in clips if count <= 2 * len(clip) <= total]
    return sorted(others, key=lambda clip: abs(len(clip) - count))[:1]


def _blocks(clips: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Yield a block of each clip that is long enough, the first ones from its end."""
    counts = [round(SHARE * len(clip)) for clip in clips]
    for step in range(TRIES) if any(counts) else ():
        ends = [len(clip) - (len(clip) - count) * step // (TRIES - 1) for clip, count in zip(clips, counts)]
        yield [clip[end - count : end] for clip, end, count in zip(clips, ends, counts) if count]
