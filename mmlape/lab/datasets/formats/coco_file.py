"""Reading an annotation file of COCO's form, as MMDetection reads it, and what each of its annotations must be."""

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
from pycocotools import mask as coco_mask

from mmlape.errors import DataError
from mmlape.lab.datasets.formats.base import ERROR, WARNING, shorten
from mmlape.lab.decoding import LARGEST, RULES, Rule, UnfitError, decoded, is_number, is_whole

FORM = 'COCO has x, y, width, height in pixels'
POLYGONS = 'COCO has a list of polygons, [[x1, y1, x2, y2, ...], ...]'


def is_box(value: Any) -> bool:
    """Return whether a value is a list of four finite numbers."""
    numbers = isinstance(value, list) and len(value) == 4 and {*map(type, value)} <= {int, float}
    return numbers and max(map(abs, value)) < LARGEST and sum(value) == sum(value)


def is_outline(value: Any) -> bool:
    """Return whether a value is a list of polygons of finite numbers, or run lengths that fill their size."""
    if isinstance(value, dict):
        size, counts = value.get('size'), value.get('counts')
        runs = _uncompressed(counts) if isinstance(counts, str) else counts
        whole = all(isinstance(part, list) and all(map(is_whole, part)) for part in (size, runs))
        return whole and len(size) == 2 and sum(runs) == math.prod(size)
    if not isinstance(value, list):
        return False
    try:
        return all(isinstance(part, list) and len(part) % 2 == 0 and math.isfinite(sum(part)) for part in value)
    except (TypeError, OverflowError):  # texts, lists of points
        return False


def _uncompressed(text: str) -> list[int] | None:
    """Return the run lengths of COCO's text, six bits a character, of which one says whether more follow.

    From the fourth on, a number is the difference to that before the last one. None for another text.
    """
    bits = np.frombuffer(text.encode(), np.uint8).astype(np.int64) - 48
    ends = (bits & 32) == 0
    if not len(bits) or bits.min() < 0 or bits.max() > 63 or not ends[-1]:
        return None
    starts = np.flatnonzero(np.r_[True, ends[:-1]])
    shifts = 5 * (np.arange(len(bits)) - np.repeat(starts, np.diff(np.r_[starts, len(bits)])))
    if shifts.max() > 30:
        return None
    runs = np.add.reduceat((bits & 31) << shifts, starts)
    runs -= np.where(bits[ends] & 16, 32 << shifts[ends], 0)  # of negative numbers
    for first in (1, 2):
        runs[first::2] = np.cumsum(runs[first::2])
    return runs.tolist()


Id = Annotated[Any, Rule('a number or a text', lambda value: isinstance(value, str) or is_number(value))]
Name = Annotated[str, Rule('a text of one line', lambda value: bool(value) and RULES[str].fits(value))]
Side = Annotated[float, Rule('a number of pixels', lambda value: is_number(value) and value > 0)]


class Category(TypedDict):
    """An entry of "categories"."""

    id: Id
    name: Name


class ImageRecord(TypedDict):
    """An entry of "images"."""

    id: Id
    file_name: Name
    height: Side
    width: Side


class Annotation(TypedDict, total=False):
    """An entry of "annotations": which fields there must be depends on what they are for."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: Annotated[list[float], Rule('four finite numbers', is_box)]
    area: Annotated[float, Rule('a finite number', is_number)]
    iscrowd: Annotated[int, Rule('0 or 1', lambda value: value in (0, 1))]
    segmentation: Annotated[
        list | dict, Rule('polygons of pairs of finite numbers, or run lengths that sum to their size', is_outline)
    ]


class Coco(TypedDict):
    """A file."""

    images: list[ImageRecord]
    categories: list[Category]
    annotations: list[Annotation]


def read_coco(path: str) -> dict[str, Any]:
    """Read an annotation file.

    COCO's train2017, 450 MB, takes 10 s and 2.5 GB of memory, which MMDetection takes again and in
    every process. The check of its annotations takes about as long.

    Returns:
        Its content, with ``annotations`` in any case: a list of test images has none.

    Raises:
        DataError: It is no JSON in UTF-8, or not of COCO's form.
    """
    try:
        content = json.loads(Path(path).read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise DataError(
            f'Annotation file {path} is not JSON in UTF-8 ({error}): download or unpack it again, or save it so.'
        ) from error
    require_form(content, path)
    return content


def require_form(content: Any, path: str) -> None:
    """Raise DataError unless what a JSON file holds is of COCO's form; complete ``annotations``."""
    if not isinstance(content, dict):
        raise DataError(
            f'Annotation file {path} is not of COCO form: a {type(content).__name__}, as a file of predictions is a '
            'list, not an object with "images", "annotations" and "categories".'
        )
    content.setdefault('annotations', [])
    try:
        decoded(Coco, content, '')
    except UnfitError as error:
        raise DataError(f'Annotation file {path} is not of COCO form: {error}.') from None
    counts = Counter(class_names(content))
    if duplicates := sorted(name for name, count in counts.items() if count > 1):
        raise DataError(f'Annotation file {path} has more than one category named {", ".join(duplicates[:6])}.')


def class_names(coco: dict[str, Any]) -> tuple[str, ...]:
    """Return the category names in the order of the file, which is MMDetection's label order."""
    return tuple(category['name'] for category in coco['categories'])


@functools.lru_cache
def listed_classes(path: str, version: tuple[int, int]) -> tuple[str, ...]:
    """Read the classes of a version of a file once: a study moves the data of each of its arms."""
    return class_names(read_coco(path))


# what an annotation must be beyond its types: MMDetection and pycocotools check next to nothing

MARGIN = 1.0  # pixels that a box may extend beyond its image or its outline: annotators round
FAR = 2  # so many times its image, a box or a polygon is no object of it


class Defect(NamedTuple):
    """What is wrong with an annotation, whose description is a predicate. Training leaves the annotation out."""

    severity: str
    topic: str
    description: str


@dataclass(frozen=True)
class AnnotationRules:
    """What an annotation is checked against."""

    labels: Mapping[Any, int]  # label of each category id
    images: Mapping[Any, dict]  # record of each image id
    with_mask: bool = False  # whether masks are loaded or evaluated, so that each must have one
    train: bool = True  # whether it is trained on; else it is evaluated
    # whether pycocotools gets it as it is, and not `mmlape.CocoMetric`, which repairs ids
    as_it_is: bool = False

    def find_defect(self, annotation: dict) -> Defect | None:
        """Return the worst defect of an annotation, None without any: each rule relies on those before it."""
        number, category, crowd = (annotation.get(key) for key in ('id', 'category_id', 'iscrowd'))
        repairs = ", or set type='mmlape.CocoMetric' in the evaluator" * self.as_it_is
        if number is None or (self.as_it_is and not (isinstance(number, int) and number > 0)):
            return Defect(ERROR, 'annotation id', f'has the id {number!r}: give each its own number from 1{repairs}')
        keys = ['bbox', 'area', 'image_id'] + ['segmentation'] * self.with_mask
        if missing := [key for key in keys if annotation.get(key) in (None, [], {})]:
            description = f'has no {", ".join(missing)}: complete it, or remove the annotation'
            return Defect(ERROR, 'incomplete annotation', description)
        box, area, image = (annotation.get(key) for key in ('bbox', 'area', 'image_id'))
        if category not in self.labels:
            known = shorten(map(repr, self.labels))
            description = f'of image {image!r} has category_id {category!r}, but the categories have ids {known}'
            return Defect(ERROR, 'unknown category', description)
        if image not in self.images:
            description = f'is of image {image!r}, which is not listed: it is used nowhere'
            return Defect(WARNING, 'annotation of no image', description)
        if min(box[2:]) < 0:
            description = f'has the box {box}, not four finite numbers with a width and a height from 0 on: {FORM}'
            return Defect(ERROR, 'invalid box', description)
        if self.as_it_is and crowd is None:
            return Defect(ERROR, 'invalid iscrowd', f'has no iscrowd: write 0 or 1{repairs}')
        width, height = (self.images[image][side] for side in ('width', 'height'))
        (x, y, w, h), place = box, f'has the box {box} in an image of {width} x {height} pixels'
        outside = w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0)
        if outside or w > FAR * width or h > FAR * height:
            where = 'so completely outside' if outside else 'so much larger'
            return Defect(ERROR, 'box outside its image', f'{place}, {where}: {FORM}')
        extent = extent_of(annotation)
        if self.with_mask and (reason := _wrong_mask(annotation['segmentation'], extent, width, height)):
            return Defect(ERROR, 'invalid mask', f'has {reason}')
        if area <= 0 or w < 1 or h < 1:
            effect = 'training leaves it out' if self.train else 'AP counts it as small, or as missed'
            return Defect(WARNING, 'box without area', f'{place}, and the area {area!r}: {effect}')
        if extent and not crowd and lies_beside(box, extent):
            description = f'{place}, and an outline in the box {extent}: correct the one that is wrong'
            return Defect(WARNING, 'box beside its outline', description)
        return None


def extent_of(annotation: Mapping[str, Any]) -> list[float] | None:
    """Return x, y, width and height of an annotation's outline; None without one."""
    outline = annotation.get('segmentation') or []
    if isinstance(outline, dict):
        runs = outline
        if isinstance(outline['counts'], list):
            runs = coco_mask.frPyObjects(outline, *outline['size'])
        return coco_mask.toBbox(runs).tolist() if coco_mask.area(runs) else None
    parts = [part for part in outline if len(part) >= 6]
    if not parts:
        return None
    left, top = (min(min(part[axis::2]) for part in parts) for axis in (0, 1))
    right, low = (max(max(part[axis::2]) for part in parts) for axis in (0, 1))
    return [left, top, right - left, low - top]


def lies_beside(box: list[float], extent: list[float]) -> bool:
    """Return whether a side of a box is beside that of an outline, beyond what programs round."""
    sides = ((x, y, x + w, y + h) for x, y, w, h in (box, extent))
    return any(abs(side - other) > 2 * MARGIN for side, other in zip(*sides))


def _wrong_mask(mask: Any, extent: list[float] | None, width: float, height: float) -> str | None:
    """Say what is wrong with a mask: run lengths of another size, or no polygons; None if nothing is."""
    if isinstance(mask, dict):
        size = mask.get('size')
        right = size == [height, width]
        return None if right else f'a mask of (height, width) {size} in an image of {height} x {width}'
    if extent and max(map(abs, (*extent, extent[0] + extent[2], extent[1] + extent[3]))) <= FAR * max(width, height):
        return None
    shown = str(mask)
    shown = shown if len(shown) <= 60 else f'{shown[:57]}...'
    return f'the segmentation {shown}, not polygons of three points or more in {width} x {height} pixels: {POLYGONS}'
