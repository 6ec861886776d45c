"""Random crops of images with boxes that may be much larger than the crop."""

from typing import Any

import mmdet.datasets.transforms as mmdet
import numpy as np
from mmdet.structures.mask import PolygonMasks

from mmlape.lab.registry import TRANSFORMS

OF_OBJECTS = ('gt_bboxes', 'gt_bboxes_labels', 'gt_ignore_flags', 'gt_masks')


@TRANSFORMS.register_module()
class RandomCrop(mmdet.RandomCrop):
    """MMDetection's random crop, which keeps no slivers of objects, and looks for objects where there are few.

    An object that the crop cuts stays if so much of its box is inside; MMDetection's keeps it
    whatever is left. Where there are masks, a box is the extent of what is left of its mask. Polygons
    (``LoadAnnotations(poly2mask=False)``) become masks of the crop, so that no mask of the complete
    image is ever drawn.

    Args:
        crop_size: Width and height, in pixels; a smaller image is kept as it is.
        min_kept: The share of a box that has to be inside.
        around: The share of the crops that have the centre of a random object; the others are
            anywhere, and may have no object.
    """

    def __init__(self, crop_size: tuple[int, int], min_kept: float = 0.3, around: float = 0.5) -> None:
        super().__init__(crop_size, allow_negative_crop=True)
        self.min_kept, self.around = min_kept, around

    def _crop_data(self, results: dict, crop_size: tuple[int, int], allow_negative_crop: bool) -> dict:
        boxes = results['gt_bboxes'].tensor.numpy()
        ignored = results.get('gt_ignore_flags', np.zeros(len(boxes), bool))
        size, extent = np.array(crop_size[::-1]), np.array(results['img'].shape[1::-1])
        start = self._start(boxes[~ignored], extent, size)
        inside = np.minimum(boxes[:, 2:], start + size) - np.maximum(boxes[:, :2], start)
        share = inside.clip(min=0).prod(1) / (boxes[:, 2:] - boxes[:, :2]).prod(1).clip(min=1e-6)
        # what is ignored is no object anywhere
        kept = np.flatnonzero((share >= self.min_kept) | (ignored & (share > 0)))
        for key in OF_OBJECTS:
            if key in results:
                results[key] = results[key][kept]
        left, top = start.tolist()
        right, low = (start + size).tolist()
        results['gt_bboxes'].translate_([-left, -top])
        results['gt_bboxes'].clip_(crop_size)
        if 'gt_masks' in results:
            results['gt_masks'] = self._crop_masks(results['gt_masks'], np.array([left, top, right, low]))
            self._fit_boxes(results)
        results['img'] = results['img'][top:low, left:right]
        results['img_shape'] = crop_size
        return results

    def _start(self, boxes: np.ndarray, extent: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return left and top of a crop, drawn anew."""
        first, last = np.zeros(2, int), extent - size
        if len(boxes) and np.random.rand() < self.around:
            box = boxes[np.random.randint(len(boxes))]
            centre = ((box[:2] + box[2:]) / 2).astype(int)
            first, last = ((centre - size + 1).clip(first, last), centre.clip(first, last))
        return np.random.randint(first, last + 1)

    @staticmethod
    def _fit_boxes(results: dict) -> None:
        """Let each box be the extent of what is left of its mask, and leave out what has no mask left."""
        seen, ignored = results['gt_masks'].areas > 0, results.get('gt_ignore_flags', np.array(False))
        extents = results['gt_masks'].get_bboxes('hbox').tensor
        results['gt_bboxes'].tensor[seen] = extents[seen]
        for key in OF_OBJECTS:
            if key in results:
                results[key] = results[key][np.flatnonzero(seen | ignored)]

    @staticmethod
    def _crop_masks(masks: Any, window: np.ndarray) -> Any:
        """Return the part of masks in a window: left, top, right, lower."""
        if not isinstance(masks, PolygonMasks):
            return masks.crop(window)
        width, height = (window[2:] - window[:2]).tolist()
        moved = [[polygon - np.resize(window[:2], len(polygon)) for polygon in one] for one in masks.masks]
        return PolygonMasks(moved, height, width).to_bitmap()
