"""Reading an annotation file of COCO's form, as MMDetection reads it, and what each of its annotations must be."""

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mmlape.errors import DataError
from mmlape.lab.datasets.formats.base import ERROR, WARNING, shorten

FIELDS = {'categories': ('id', 'name'), 'images': ('id', 'file_name', 'height', 'width'), 'annotations': ()}
"""The fields that the entries of each list must have."""


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
    for key, fields in FIELDS.items():
        if not isinstance(content.get(key), list):
            raise DataError(f'Annotation file {path} is not of COCO form: it has no list "{key}".')
        for entry in content[key]:
            missing = [name for name in fields if not isinstance(entry, dict) or entry.get(name) in (None, '')]
            if missing:
                raise DataError(
                    f'Annotation file {path} has an entry without "{missing[0]}" in "{key}": {str(entry)[:120]}'
                )
    for record in content['images']:
        if not all(is_number(record[side]) and record[side] > 0 for side in ('height', 'width')):
            raise DataError(
                f'Annotation file {path} has an image whose height or width is no number of pixels: {str(record)[:99]}'
            )
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


# what an annotation must be: MMDetection and pycocotools check next to nothing. A NaN in a polygon takes all memory,
# and a text is as true as 1.

MARGIN = 1.0  # pixels that a box may extend beyond its image: annotators round
FAR = 2  # so many times its image, a box or a polygon is no object of it
FORM = 'COCO has x, y, width, height in pixels'
POLYGONS = 'COCO has a list of polygons, [[x1, y1, x2, y2, ...], ...]'


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
        if not is_box(box):
            description = f'has the box {box}, not four finite numbers with a width and a height from 0 on: {FORM}'
            return Defect(ERROR, 'invalid box', description)
        if crowd not in ((0, 1) if self.as_it_is else (None, 0, 1)):
            return Defect(ERROR, 'invalid iscrowd', f'has iscrowd {crowd!r}: write 0 or 1{repairs}')
        width, height = (self.images[image][side] for side in ('width', 'height'))
        (x, y, w, h), place = box, f'has the box {box} in an image of {width} x {height} pixels'
        outside = w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0)
        if outside or w > FAR * width or h > FAR * height:
            where = 'so completely outside' if outside else 'so much larger'
            return Defect(ERROR, 'box outside its image', f'{place}, {where}: {FORM}')
        if self.with_mask and (reason := _wrong_mask(annotation['segmentation'], width, height)):
            return Defect(ERROR, 'invalid mask', f'has {reason}')
        if not is_number(area) or area <= 0 or w < 1 or h < 1:
            effect = 'training leaves it out' if self.train else 'AP counts it as small, or as missed'
            return Defect(WARNING, 'box without area', f'{place}, and the area {area!r}: {effect}')
        return None


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_box(value: object) -> bool:
    """Return whether a value is a list of four finite numbers, of which width and height are not negative."""
    return isinstance(value, list) and len(value) == 4 and all(map(is_number, value)) and min(value[2:]) >= 0


def _wrong_mask(mask: Any, width: float, height: float) -> str | None:
    """Say what is wrong with a mask: run lengths of another size, or no polygons; None if nothing is."""
    if isinstance(mask, dict):
        size = mask.get('size')
        right = size == [height, width]
        return None if right else f'a mask of (height, width) {size} in an image of {height} x {width}'
    furthest = FAR * max(width, height)
    polygons = isinstance(mask, list) and all(_is_near(part, furthest) for part in mask)
    if polygons and max(map(len, mask)) >= 6:
        return None
    shown = str(mask)
    shown = shown if len(shown) <= 60 else f'{shown[:57]}...'
    return f'the segmentation {shown}, not polygons of three points or more in {width} x {height} pixels: {POLYGONS}'


def _is_near(part: Any, furthest: float) -> bool:
    """Return whether a part of a mask is a list of coordinates in pairs, none of them far away."""
    try:
        return len(part) % 2 == 0 and math.isfinite(sum(part)) and max(map(abs, part), default=0) <= furthest
    except TypeError:  # numbers without a list around them, texts, lists of points
        return False
