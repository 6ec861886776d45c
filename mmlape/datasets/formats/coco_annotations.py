"""The check of one annotation of a COCO file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mmlape.datasets.formats.base import shorten
from mmlape.datasets.issues import ERROR, WARNING

MARGIN = 1.0  # pixels that a box may extend beyond its image: annotators round


class Defect(NamedTuple):
    """What is wrong with an annotation: the issue, with a predicate as its message, and whether it is still used."""

    severity: str
    kind: str
    description: str
    usable: bool = False


@dataclass(frozen=True)
class AnnotationRules:
    """What an annotation is checked against.

    Attributes:
        labels: Label of each category id.
        images: Record of each image id; None where only a sample was read.
        with_mask: Whether the pipeline loads masks.
        needs_mask: Whether every annotation must have one.
    """

    labels: Mapping[int, int]
    images: Mapping[int, dict] | None
    with_mask: bool
    needs_mask: bool

    def find_defect(self, annotation: dict) -> Defect | None:
        """Return the worst defect of an annotation; None without any."""
        category = annotation.get('category_id')
        if category not in self.labels:
            description = f'has category_id {category}, but the categories have ids {shorten(self.labels)}'
            return Defect(ERROR, 'unknown category', f'of image {annotation.get("image_id")} {description}')
        missing = [key for key in ('bbox', 'area', 'image_id') if key not in annotation]
        if self.needs_mask and not annotation.get('segmentation'):
            missing.append('segmentation')
        if missing:
            return Defect(ERROR, 'incomplete annotation', f'has no {", ".join(missing)}')
        box = annotation['bbox']
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_finite, box))):
            return Defect(ERROR, 'invalid box', f'has the box {box}, not four finite numbers')
        if not isinstance(annotation['area'], int | float):
            return Defect(ERROR, 'invalid area', f'has the area {annotation["area"]}, not a number')
        if self.with_mask and not _is_mask(annotation.get('segmentation')):
            mask = str(annotation['segmentation'])[:60]
            return Defect(ERROR, 'invalid mask', f'has a segmentation that is neither polygons nor a mask: {mask}')
        if self.images is None:
            return None
        record = self.images.get(annotation['image_id'])
        if record is None:
            description = f'is of image {annotation["image_id"]}, which is not listed'
            return Defect(WARNING, 'annotation of no image', description)
        return self._find_misfit(annotation, record['width'], record['height'])

    def _find_misfit(self, annotation: dict, width: int, height: int) -> Defect | None:
        """Return what does not fit an image of this size."""
        (x, y, w, h), area, mask = annotation['bbox'], annotation['area'], annotation.get('segmentation')
        box = f'has the box {annotation["bbox"]} in an image of {width} x {height} pixels'
        if w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0):
            return Defect(ERROR, 'box outside its image', f'{box}, so completely outside')
        if self.with_mask and isinstance(mask, dict) and mask.get('size') != [height, width]:
            sizes = f'{mask.get("size")} in an image of {height} x {width}'
            return Defect(ERROR, 'mask of another size', f'has a mask of (height, width) {sizes}')
        if w < 1 or h < 1 or (_is_finite(area) and area <= 0):
            return Defect(WARNING, 'box without area', f'{box}, and the area {area}: it will not be used')
        if self.with_mask and isinstance(mask, list) and not any(map(_is_polygon, mask)):
            return Defect(WARNING, 'mask without area', 'has no polygon of three points or more', usable=True)
        if min(x, y) < -MARGIN or x + w > width + MARGIN or y + h > height + MARGIN:
            return Defect(WARNING, 'box partly outside', f'{box}, so partly outside', usable=True)
        return None


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_mask(value: object) -> bool:
    """Return whether MMDetection can read it: polygons, an encoded mask, or nothing."""
    if isinstance(value, list):
        return all(isinstance(part, list) for part in value)
    return not value or isinstance(value, dict)


def _is_polygon(part: object) -> bool:
    return isinstance(part, list) and len(part) >= 6 and len(part) % 2 == 0
