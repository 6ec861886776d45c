"""What can be wrong with one annotation of a COCO file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mmlape.datasets.checks.base import ERROR, WARNING, shorten

MARGIN = 1.0  # pixels that a box may stand out of its image: annotators round


class Fault(NamedTuple):
    """Severity and kind of a problem, the words that follow the annotation's id, and whether it is still used."""

    severity: str
    kind: str
    words: str
    usable: bool = False


@dataclass(frozen=True)
class AnnotationRules:
    """What an annotation is held against.

    Args:
        labels: Label of each category id.
        images: Record of each image id; None where only some were read.
        with_mask: Whether the pipeline loads masks.
        needs_mask: Whether every annotation must have one.
    """

    labels: Mapping[int, int]
    images: Mapping[int, dict] | None
    with_mask: bool
    needs_mask: bool

    def fault(self, entry: dict) -> Fault | None:
        """The worst that is wrong with an annotation."""
        category = entry.get('category_id')
        if category not in self.labels:
            words = f'has category_id {category}, but the categories have ids {shorten(self.labels)}'
            return Fault(ERROR, 'unknown category', f'of image {entry.get("image_id")} {words}')
        missing = [key for key in ('bbox', 'area', 'image_id') if key not in entry]
        if self.needs_mask and not entry.get('segmentation'):
            missing.append('segmentation')
        if missing:
            return Fault(ERROR, 'incomplete annotation', f'has no {", ".join(missing)}')
        box = entry['bbox']
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_finite, box))):
            return Fault(ERROR, 'broken box', f'has the box {box}, not four finite numbers')
        if not isinstance(entry['area'], int | float):
            return Fault(ERROR, 'broken area', f'has the area {entry["area"]}, not a number')
        if self.with_mask and not _is_mask(entry.get('segmentation')):
            words = f'has a segmentation that is neither polygons nor a mask: {str(entry["segmentation"])[:60]}'
            return Fault(ERROR, 'broken mask', words)
        if self.images is None:
            return None
        record = self.images.get(entry['image_id'])
        if record is None:
            return Fault(WARNING, 'annotation of no image', f'is of image {entry["image_id"]}, which is not listed')
        return self._misfit(entry, record['width'], record['height'])

    def _misfit(self, entry: dict, width: int, height: int) -> Fault | None:
        """What does not fit the image of this size."""
        (x, y, w, h), mask = entry['bbox'], entry.get('segmentation')
        beside = f'has the box {entry["bbox"]} in an image of {width} x {height} pixels'
        fault = None
        if w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0):
            fault = Fault(ERROR, 'box outside its image', f'{beside}, so wholly outside')
        elif self.with_mask and isinstance(mask, dict) and mask.get('size') != [height, width]:
            words = f'has a mask of (height, width) {mask.get("size")} in an image of {height} x {width}'
            fault = Fault(ERROR, 'mask of another size', words)
        elif w < 1 or h < 1 or (_is_finite(entry['area']) and entry['area'] <= 0):
            words = f'{beside}, and the area {entry["area"]}: it will not be used'
            fault = Fault(WARNING, 'box without area', words)
        elif self.with_mask and isinstance(mask, list) and not any(map(_is_polygon, mask)):
            fault = Fault(WARNING, 'mask without area', 'has no polygon of three points or more', True)
        elif min(x, y) < -MARGIN or x + w > width + MARGIN or y + h > height + MARGIN:
            fault = Fault(WARNING, 'box partly outside', f'{beside}, so partly outside', True)
        return fault


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_mask(value: object) -> bool:
    """Whether MMDetection can read it: polygons, an encoded mask, or nothing."""
    if isinstance(value, list):
        return all(isinstance(part, list) for part in value)
    return not value or isinstance(value, dict)


def _is_polygon(part: object) -> bool:
    return isinstance(part, list) and len(part) >= 6 and len(part) % 2 == 0
