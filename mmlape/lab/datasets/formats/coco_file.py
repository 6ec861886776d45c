"""Reading an annotation file of COCO's form, as MMDetection reads it, and what each of its annotations must be."""

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from mmlape.errors import DataError
from mmlape.lab.datasets.formats.base import DataIssue, error, shorten, warning
from mmlape.lab.decoding import LARGEST, FieldRule

FORM = 'COCO has x, y, width, height in pixels'
POLYGONS = 'COCO has a list of polygons, [[x1, y1, x2, y2, ...], ...]'


def are_numbers(values: list) -> bool:
    """Return whether values are finite numbers that sums stay finite with."""
    near = {*map(type, values)} <= {int, float} and max(map(abs, values), default=0) < LARGEST
    return near and math.isfinite(sum(values))


def are_ids(values: list) -> bool:
    """Return whether values are numbers or texts."""
    return are_numbers([value for value in values if type(value) is not str])


def are_names(values: list) -> bool:
    """Return whether values are texts of one line."""
    return {*map(type, values)} <= {str} and all(values) and '\n' not in ''.join(values)


def are_boxes(values: list) -> bool:
    """Return whether values are lists of four numbers."""
    lists = all(type(value) is list and len(value) == 4 for value in values)
    return lists and are_numbers([*chain.from_iterable(values)])


def are_outlines(values: list) -> bool:
    """Return whether values are lists of polygons of finite numbers, or run lengths that fill their size."""
    lists = [value for value in values if type(value) is not dict]
    if not {*map(type, lists)} <= {list} or not all(
        _fills(value) for value in values if value and type(value) is dict
    ):
        return False
    parts = [*chain.from_iterable(lists)]
    try:
        even = {*map(type, parts)} <= {list} and not any(len(part) % 2 for part in parts)
        return even and all(map(math.isfinite, map(sum, parts)))
    except (TypeError, OverflowError):  # texts, lists of points
        return False


def _fills(mask: dict) -> bool:
    """Return whether run lengths, a list or COCO's text, are whole numbers that sum to their size."""
    size, runs = mask.get('size'), mask.get('counts')
    runs = _uncompressed(runs) if isinstance(runs, str) else runs
    whole = all(type(part) is list and {*map(type, part)} == {int} and min(part) >= 0 for part in (size, runs))
    return whole and len(size) == 2 and sum(runs) == math.prod(size)


def _uncompressed(text: str) -> list[int] | None:
    """Return the run lengths of COCO's text, six bits a character, of which one says whether more follow.

    From the fourth on, a number is the difference to that before the last one. None for another text.
    """
    bits = np.frombuffer(text.encode(errors='surrogatepass'), np.uint8).astype(np.int64) - 48
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


ID = FieldRule('a number or a text', are_ids)
NAME = FieldRule('a text of one line', are_names)
SIDE = FieldRule('a number of pixels', lambda values: are_numbers(values) and min(values, default=1) > 0)
FIELDS = dict(
    images=dict(id=ID, file_name=NAME, height=SIDE, width=SIDE),
    categories=dict(id=ID, name=NAME),
    annotations=dict(
        id=ID,
        image_id=ID,
        category_id=ID,
        bbox=FieldRule('four finite numbers', are_boxes),
        area=FieldRule('a finite number', are_numbers),
        iscrowd=FieldRule('0 or 1', lambda values: {*map(type, values)} <= {int, float, bool} and {*values} <= {0, 1}),
        segmentation=FieldRule(
            'polygons of pairs of finite numbers, or run lengths that sum to their size', are_outlines
        ),
    ),
)
"""What the entries of each list must hold; which of them an annotation must have depends on what it is for.

A rule is asked of all values of a field that are not null at once, as COCO has millions.
"""


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
    start = f'Annotation file {path} is not of COCO form:'
    if not isinstance(content, dict):
        kind = 'a list, as files of predictions are' if isinstance(content, list) else f'a {type(content).__name__}'
        raise DataError(f'{start} it is {kind}, not an object with "images", "annotations" and "categories".')
    content.setdefault('annotations', [])
    for key, fields in FIELDS.items():
        records = content.get(key)
        if not isinstance(records, list) or not {*map(type, records)} <= {dict}:
            raise DataError(f'{start} it has no list "{key}" of objects.')
        for name, field in fields.items():
            if reason := _misfit([record.get(name) for record in records], name, field, key != 'annotations'):
                raise DataError(f'{start} {key}.{reason}.')
    counts = Counter(class_names(content))
    if duplicates := sorted(name for name, count in counts.items() if count > 1):
        raise DataError(f'Annotation file {path} has more than one category named {", ".join(duplicates[:6])}.')


def _misfit(values: list, name: str, field: FieldRule, required: bool) -> str | None:
    """Say which values of a field do not fit it; None if all do."""
    given = [value for value in values if value is not None]
    if field.fits(given) and (len(given) == len(values) or not required):
        return None
    wrong = [at for at, value in enumerate(values) if (required if value is None else not field.fits([value]))]
    value = values[wrong[0]]
    text = json.dumps(value, ensure_ascii=False)
    is_what = (
        ' is missing or null' if value is None else f'={text[:57]}{"..." * (len(text) > 57)} is not {field.expected}'
    )
    return f'{wrong[0]}.{name}{is_what}' + f' (the first of {len(wrong)})' * (len(wrong) > 1)


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


KEYS = ('id', 'category_id', 'iscrowd', 'bbox', 'area', 'image_id', 'segmentation')


def find_defect(
    annotation: dict,
    labels: Mapping[Any, int],
    images: Mapping[Any, dict],
    with_mask: bool,
    train: bool,
    as_it_is: bool,
) -> DataIssue | None:
    """Return the worst defect of an annotation, None without any: each rule relies on those before it.

    The message is a predicate. Training leaves the annotation out.

    Args:
        annotation: Of a file.
        labels: Label of each category id.
        images: Record of each image id.
        with_mask: Whether masks are loaded or evaluated, so that each must have one.
        train: Whether it is trained on; else it is evaluated.
        as_it_is: Whether pycocotools gets it as it is, and not `mmlape.CocoMetric`, which repairs ids.
    """
    number, category, crowd, box, area, image, outline = map(annotation.get, KEYS)
    repairs = ", or set type='mmlape.CocoMetric' in the evaluator" * as_it_is
    if number is None or (as_it_is and not (isinstance(number, int) and number > 0)):
        return error('annotation id', f'has the id {number!r}: give each its own number from 1{repairs}')
    if not box or area is None or image is None or (with_mask and not outline):
        keys = ['bbox', 'area', 'image_id'] + ['segmentation'] * with_mask
        missing = [key for key in keys if annotation.get(key) in (None, [], {})]
        return error('incomplete annotation', f'has no {", ".join(missing)}: complete it, or remove the annotation')
    if category not in labels:
        known = shorten(map(repr, labels))
        return error(
            'unknown category', f'of image {image!r} has category_id {category!r}, but the categories have ids {known}'
        )
    if image not in images:
        return warning('annotation of no image', f'is of image {image!r}, which is not listed: it is used nowhere')
    x, y, w, h = box
    if w < 0 or h < 0:
        return error(
            'invalid box', f'has the box {box}, not four finite numbers with a width and a height from 0 on: {FORM}'
        )
    if as_it_is and crowd is None:
        return error('invalid iscrowd', f'has no iscrowd: write 0 or 1{repairs}')
    record = images[image]
    width, height = record['width'], record['height']
    place = f'has the box {box} in an image of {width} x {height} pixels'
    outside = w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0)
    if outside or w > FAR * width or h > FAR * height:
        where = 'so completely outside' if outside else 'so much larger'
        return error('box outside its image', f'{place}, {where}: {FORM}')
    extent = extent_of(annotation)
    if with_mask and (reason := _wrong_mask(outline, extent, width, height)):
        return error('invalid mask', f'has {reason}')
    if area <= 0 or w < 1 or h < 1:
        effect = 'training leaves it out' if train else 'AP counts it as small, or as missed'
        return warning('box without area', f'{place}, and the area {area!r}: {effect}')
    if extent and not crowd and lies_beside(box, extent):
        return warning(
            'box beside its outline', f'{place}, and an outline in the box {extent}: correct the one that is wrong'
        )
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
    points = [*chain.from_iterable(parts)]
    xs, ys = points[::2], points[1::2]
    left, top = min(xs), min(ys)
    return [left, top, max(xs) - left, max(ys) - top]


def lies_beside(box: list[float], extent: list[float]) -> bool:
    """Return whether a side of a box is beside that of an outline, beyond what programs round."""
    (x, y, w, h), (left, top, width, height) = box, extent
    ends = abs(x + w - left - width), abs(y + h - top - height)
    return max(abs(x - left), abs(y - top), *ends) > 2 * MARGIN


def _wrong_mask(mask: Any, extent: list[float] | None, width: float, height: float) -> str | None:
    """Say what is wrong with a mask: run lengths of another size, or no polygons; None if nothing is."""
    if isinstance(mask, dict):
        size = mask['size']
        return (
            None if size == [height, width] else f'a mask of (height, width) {size} in an image of {height} x {width}'
        )
    if extent and max(map(abs, (*extent, extent[0] + extent[2], extent[1] + extent[3]))) <= FAR * max(width, height):
        return None
    shown = str(mask)
    shown = shown if len(shown) <= 60 else f'{shown[:57]}...'
    return f'the segmentation {shown}, not polygons of three points or more in {width} x {height} pixels: {POLYGONS}'
