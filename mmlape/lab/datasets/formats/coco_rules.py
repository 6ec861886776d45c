"""What an annotation of a COCO file must be, for MMDetection to load it and for pycocotools to evaluate it.

Both check next to nothing: a NaN in a polygon takes all memory, run lengths that do not fill a mask
lower its AP, and a text is as true as 1.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mmlape.lab.datasets.formats.base import ERROR, WARNING, shorten

MARGIN = 1.0  # pixels that a box may extend beyond its image: annotators round
FAR = 2  # so many times its image, a box or a polygon is no object of it
BITS = 5  # of a run length in each character of a compressed mask
LONGEST = 7  # characters of a run length, for 2**32 pixels
FORM = 'COCO has x, y, width, height in pixels'
POLYGONS = 'COCO has a list of polygons, [[x1, y1, x2, y2, ...], ...]'
SAME = 0.5  # IoU from which the box of a mask is the annotation's


class Defect(NamedTuple):
    """What is wrong with an annotation.

    The issue, with a predicate as its message, and whether it is still learnt.
    """

    severity: str
    topic: str
    description: str
    usable: bool = False


@dataclass(frozen=True)
class AnnotationRules:
    """What an annotation is checked against."""

    labels: Mapping[Any, int]  # label of each category id
    images: Mapping[Any, dict]  # record of each image id
    with_mask: bool = False  # whether masks are loaded or evaluated, so that each must have one
    train: bool = True  # whether it is trained on; else it is evaluated
    # whether pycocotools gets it as it is, and not `mmlape.CocoMetric`, which repairs ids
    as_it_is: bool = False

    def find_defects(self, annotations: list[dict]) -> list[Defect | None]:
        """Return the worst defect of each; without any mask, those of the boxes."""
        masked = any(annotation.get('segmentation') for annotation in annotations)
        rules = self if masked else replace(self, with_mask=False)
        return [rules.find_defect(annotation) for annotation in annotations]

    def find_defect(self, annotation: dict) -> Defect | None:
        """Return the worst defect of an annotation; None without any."""
        return (
            self._find_wrong_reference(annotation)
            or self._find_missing_field(annotation)
            or self._find_wrong_flag(annotation)
            or self._find_wrong_box(annotation)
            or self._find_outside(annotation)
            or (self._find_wrong_mask(annotation) if self.with_mask else None)
            or self._find_misfit(annotation)
        )

    def _find_wrong_reference(self, annotation: dict) -> Defect | None:
        number = annotation.get('id')
        if number is None or isinstance(number, bool) or number != number:
            return Defect(ERROR, 'annotation without id', f'has the id {number!r}: give each its own')
        if self.as_it_is and not (isinstance(number, int) and 0 < number < 2**63):
            return Defect(
                ERROR,
                'annotation id',
                f'has the id {number!r}: pycocotools takes whole numbers from 1 only, and 0 as not '
                "matched. Number them, or set type='mmlape.CocoMetric' in the evaluator",
            )
        category, image = annotation.get('category_id'), annotation.get('image_id')
        if category not in self.labels:
            return Defect(
                ERROR,
                'unknown category',
                f'of image {image!r} has category_id {category!r}, but the categories have ids '
                f'{shorten(map(repr, self.labels))}{_other_type(category, self.labels)}',
            )
        if 'image_id' in annotation and image not in self.images:
            return Defect(
                WARNING,
                'annotation of no image',
                f'is of image {image!r}, which is not listed{_other_type(image, self.images)}: it is used nowhere',
            )
        return None

    def _find_missing_field(self, annotation: dict) -> Defect | None:
        missing = [key for key in ('bbox', 'area', 'image_id') if annotation.get(key) is None]
        if self.with_mask and not annotation.get('segmentation'):
            missing.append('segmentation')
        if not missing:
            return None
        fix = 'complete it, or remove the annotation'
        return Defect(ERROR, 'incomplete annotation', f'has no {", ".join(missing)}: {fix}')

    def _find_wrong_flag(self, annotation: dict) -> Defect | None:
        for key in ('iscrowd', 'ignore'):
            flag = annotation.get(key)
            if flag is not None and (isinstance(flag, str) or flag not in (0, 1)):
                description = f'has {key} {flag!r}, which counts as true: write 0 or 1'
                return Defect(ERROR, f'invalid {key}', description)
        if self.as_it_is and not isinstance(annotation.get('iscrowd'), int):
            description = (
                f'has iscrowd {annotation.get("iscrowd")!r}: write 0 or 1, or set '
                "type='mmlape.CocoMetric' in the evaluator"
            )
            return Defect(ERROR, 'invalid iscrowd', description)
        if annotation.get('ignore'):
            description = (
                'has "ignore": 1: training leaves it out, but AP counts it as an object; iscrowd=1 '
                'leaves it out of both'
            )
            return Defect(WARNING, 'ignored annotation', description)
        return None

    def _find_wrong_box(self, annotation: dict) -> Defect | None:
        box, area = annotation['bbox'], annotation['area']
        if not is_box(box):
            description = f'has the box {box}, not four finite numbers: {FORM}'
            return Defect(ERROR, 'invalid box', description)
        if box[2] < 0 or box[3] < 0:
            description = f'has the box {box}, of negative width or height: {FORM}'
            return Defect(ERROR, 'invalid box', description)
        if not is_number(area) or area < 0:
            description = f'has the area {area!r}, not a number of pixels'
            return Defect(ERROR, 'invalid area', description)
        return None

    def _find_outside(self, annotation: dict) -> Defect | None:
        record = self.images[annotation['image_id']]
        width, height = record['width'], record['height']
        x, y, w, h = annotation['bbox']
        if w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0):
            where = 'so completely outside'
        elif w > FAR * width or h > FAR * height:
            where = 'so much larger'
        else:
            return None
        description = f'{_place(annotation, record)}, {where}: {FORM}'
        return Defect(ERROR, 'box outside its image', description)

    def _find_wrong_mask(self, annotation: dict) -> Defect | None:
        mask, record = annotation['segmentation'], self.images[annotation['image_id']]
        width, height = record['width'], record['height']
        if isinstance(mask, dict) and mask.get('size') != [height, width]:
            sizes = f'{mask.get("size")} in an image of {height} x {width}'
            return Defect(ERROR, 'mask of another size', f'has a mask of (height, width) {sizes}')
        reason = (
            _wrong_run_lengths(mask.get('counts'), width * height)
            if isinstance(mask, dict)
            else _wrong_polygons(mask, width, height)
        )
        if reason:
            shown = str(mask)
            shown = shown if len(shown) <= 60 else f'{shown[:57]}...'
            return Defect(ERROR, 'invalid mask', f'has the segmentation {shown}, {reason}')
        return None if isinstance(mask, dict) else self._find_fragment(annotation)

    def _find_fragment(self, annotation: dict) -> Defect | None:
        """Return whether its polygons have too few points, or another box."""
        mask = annotation['segmentation']
        polygons = [part for part in mask if is_polygon(part)]
        if not polygons:
            description = 'has no polygon of three points or more: complete or remove it'
            return Defect(ERROR, 'mask without area', description)
        if len(polygons) < len(mask) and self.as_it_is:
            description = (
                'has a polygon of fewer than three points, which pycocotools takes for a box: '
                "remove it, or set type='mmlape.CocoMetric' in the evaluator"
            )
            return Defect(ERROR, 'invalid mask', description)
        return _find_other_box(annotation['bbox'], polygons)

    def _find_misfit(self, annotation: dict) -> Defect | None:
        """Return what is evaluated otherwise than it is learnt."""
        record = self.images[annotation['image_id']]
        (x, y, w, h), area = annotation['bbox'], annotation['area']
        if area == 0 or w < 1 or h < 1:
            if self.train:
                effect = 'training leaves it out'
            elif w == 0 or h == 0:
                effect = 'no prediction can match it, so AP counts a miss'
            elif area == 0:
                effect = 'AP counts it as a small object'
            else:
                return None
            description = f'{_place(annotation, record)}, and the area {area}: {effect}'
            return Defect(WARNING, 'box without area', description)
        right, bottom = record['width'] + MARGIN, record['height'] + MARGIN
        if x < -MARGIN or y < -MARGIN or x + w > right or y + h > bottom:
            effect = 'so partly outside, where AP expects predictions, too'
            description = f'{_place(annotation, record)}, {effect}'
            return Defect(WARNING, 'box partly outside', description, usable=True)
        return None


def _place(annotation: dict, record: dict) -> str:
    """Say where a box is."""
    size = f'{record["width"]} x {record["height"]}'
    return f'has the box {annotation["bbox"]} in an image of {size} pixels'


def _other_type(found_id: object, ids: Collection) -> str:
    """Explain that an id is a text and the ids are numbers, or the reverse."""
    for one in ids:
        if str(one) == str(found_id):
            return f'; {found_id!r} and {one!r} are not the same in JSON: write both in one way'
    return ''


def _find_other_box(box: list, polygons: list[list]) -> Defect | None:
    """Compare a box with that of its mask."""
    xs, ys = polygons[0][::2], polygons[0][1::2]
    for part in polygons[1:]:
        xs += part[::2]
        ys += part[1::2]
    left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    x, y, w, h = box
    spanned = (left, top, right, bottom)
    if _iou((x, y, x + w, y + h), spanned) >= SAME:
        return None
    if _iou((x, y, w, h), spanned) > 0.9:
        description = f'has the box {box}, which is that of its mask as x1, y1, x2, y2: {FORM}'
        return Defect(ERROR, 'box of another form', description)
    shown = [round(side, 1) for side in (left, top, right - left, bottom - top)]
    description = (
        f'has the box {box}, but its mask spans {shown}: boxes are learnt and evaluated by the one, masks by the other'
    )
    return Defect(WARNING, 'box and mask differ', description, usable=True)


def _iou(first: tuple, second: tuple) -> float:
    """Return the IoU of two boxes (x1, y1, x2, y2), each a pixel wider on all sides: thin ones may be off by one."""
    width = min(first[2], second[2]) - max(first[0], second[0]) + 2
    height = min(first[3], second[3]) - max(first[1], second[1]) + 2
    common = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0] + 2) * (box[3] - box[1] + 2) for box in (first, second)]
    return common / (areas[0] + areas[1] - common)


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_box(value: object) -> bool:
    """Return whether a value is a list of four finite numbers."""
    return isinstance(value, list) and len(value) == 4 and all(map(is_number, value))


def is_polygon(part: list) -> bool:
    """Return whether a polygon has three points or more; MMDetection and `mmlape.CocoMetric` leave others out."""
    return len(part) >= 6


def _wrong_polygons(mask: Any, width: float, height: float) -> str | None:
    """Say what is wrong with polygons; None if nothing is."""
    if not isinstance(mask, list):
        return f'neither polygons nor run lengths: {POLYGONS}'
    furthest = FAR * max(width, height)
    for part in mask:
        if not isinstance(part, list):
            flat = all(map(is_number, mask))
            return f'{"one list of numbers" if flat else "not a list of lists"}: {POLYGONS}'
        try:
            total = sum(part)
        except TypeError:
            pairs = any(isinstance(value, list) for value in part)
            return f'{"lists of points" if pairs else "not of numbers"}: {POLYGONS}'
        if not math.isfinite(total):
            return 'with a coordinate that is not finite'
        if len(part) % 2:
            return f'with {len(part)} coordinates, an odd number: {POLYGONS}'
        if part and (min(part) < -furthest or max(part) > furthest):
            return f'far outside its image of {width} x {height} pixels'
    if len(mask) > 1 and all(len(part) == 2 for part in mask):
        return f'a list of points: {POLYGONS}'
    return None


def _wrong_run_lengths(counts: Any, pixels: float) -> str | None:
    """Say what is wrong with the run lengths of a mask; None if nothing is."""
    if isinstance(counts, str):
        lengths = decode_run_lengths(counts)
    elif isinstance(counts, list) and set(map(type, counts)) <= {int}:
        lengths = np.array(counts, dtype=object)
    else:
        return 'which has no "counts": a text or a list of whole numbers'
    if lengths is None or (lengths < 0).any():
        return 'whose counts are no run lengths: write them by pycocotools.mask.encode'
    total = lengths.sum()
    if total != pixels:
        return f'whose counts are of {total} pixels, but its image has {pixels:g}'
    return None if lengths[1::2].sum() else 'which is empty: remove the annotation'


def decode_run_lengths(text: str) -> np.ndarray | None:
    """Decode the counts of a compressed mask; None if they are none.

    A run length is written in characters of 6 bits from '0' on: five bits of a number, lowest
    first, and one that says whether more follow. From the fourth on it is the difference to the
    last but one.
    """
    codes = np.array([ord(character) for character in text], dtype=np.int64) - ord('0')
    if not len(codes) or codes.min() < 0 or codes.max() > 63:
        return None
    ends = np.flatnonzero(codes < 32)
    if not len(ends) or ends[-1] != len(codes) - 1:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    if sizes.max() > LONGEST:
        return None
    places = np.arange(len(codes)) - np.repeat(starts, sizes)
    lengths = np.add.reduceat((codes & 31) << (BITS * places), starts)
    lengths -= np.where(codes[ends] & 16, 1 << (BITS * sizes), 0)  # the sign
    lengths[1::2] = lengths[1::2].cumsum()
    lengths[2::2] = lengths[2::2].cumsum()
    return lengths
