"""Drawings of samples by the visualizers of the MM packages, on images enlarged to a legible size.

Images are (H, W, 3) uint8 arrays in RGB order throughout.
"""

import functools
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmcv import imresize
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from PIL import Image

from mmlape.errors import DataError
from mmlape.files import write_bytes
from mmlape.lab.datasets.folders import class_palette

MIN_LONGER_SIDE = 640  # pixels, of a drawing
SIDES, PARTS = ('gt', 'pred'), ('instances', 'sem_seg')


def draw_sample(
    image: np.ndarray,
    sample: BaseDataElement,
    classes: Sequence[str],
    score_thr: float = 0.0,
    sides: Sequence[str] = SIDES,
    longest: int | None = None,
) -> np.ndarray:
    """Draw the annotations of an image, its prediction, or the first beside the second.

    Args:
        image: (H, W, 3), RGB.
        sample: Of MMDetection, MMSegmentation or MMPretrain.
        classes: Name of each label.
        score_thr: Predicted objects with a lower score are left out.
        sides: 'gt', 'pred' or both; what the sample does not have is left out.
        longest: Pixels to whose longer side a larger image is reduced.

    Returns:
        (H * f, W * f, 3), with f >= 1 such that the longer side is legible, or f < 1 by
        ``longest``; twice as wide for two sides.
    """
    large = enlarge(image, longest)
    meta = dict(classes=list(classes), palette=[tuple(colour) for colour in class_palette(len(classes))])
    objects, maps = ([f'{side}_{part}' for side in sides if f'{side}_{part}' in sample] for part in PARTS)
    if objects:
        factor = large.shape[0] / image.shape[0]
        drawn = [_draw_instances(large, factor, sample.get(name), meta, score_thr) for name in objects]
        return np.concatenate(drawn, axis=1)
    if maps:
        return np.concatenate([_draw_label_map(large, sample.get(name), meta) for name in maps], axis=1)
    from mmpretrain.visualization import UniversalVisualizer

    return UniversalVisualizer().visualize_cls(large, sample, classes)


def _draw_instances(
    large: np.ndarray, factor: float, objects: InstanceData, meta: dict, score_thr: float
) -> np.ndarray:
    from mmdet.structures import DetDataSample
    from mmdet.visualization import DetLocalVisualizer

    visualizer = DetLocalVisualizer(alpha=0.6)
    visualizer.dataset_meta = meta
    # as ground truth: of predictions the visualizer would leave out those at the threshold
    shown = DetDataSample(gt_instances=_enlarged(objects, factor, large.shape[:2], score_thr))
    visualizer.add_datasample('', large, shown, draw_pred=False)
    return visualizer.get_image()


def _enlarged(objects: InstanceData, factor: float, size: tuple[int, int], score_thr: float) -> InstanceData:
    """Return the objects that are drawn, with boxes and masks of an image scaled by a factor."""
    if 'scores' in objects:
        objects = objects[objects.scores >= score_thr]
    if not len(objects):
        return InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long))
    boxes = torch.as_tensor(getattr(objects.bboxes, 'tensor', objects.bboxes)).float().reshape(-1, 4)
    large = InstanceData(bboxes=boxes * factor, labels=torch.as_tensor(objects.labels))
    if 'scores' in objects:
        large.scores = objects.scores
    if 'masks' in objects:
        masks = objects.masks
        masks = masks.to_ndarray() if hasattr(masks, 'to_ndarray') else np.asarray(masks)
        scaled = [imresize(_pixels(mask), size[::-1], interpolation='nearest') for mask in masks]
        large.masks = torch.from_numpy(np.stack(scaled).astype(bool))
    return large


def _pixels(mask: np.ndarray | dict) -> np.ndarray:
    """Return a mask (H, W), also one of COCO's run lengths, as uint8."""
    if isinstance(mask, dict):
        from pycocotools import mask as coco_mask

        return coco_mask.decode(mask)
    return mask.astype(np.uint8)


def _draw_label_map(large: np.ndarray, labels: PixelData, meta: dict) -> np.ndarray:
    from mmseg.structures import SegDataSample
    from mmseg.visualization import SegLocalVisualizer

    visualizer = SegLocalVisualizer(alpha=0.6)
    visualizer.dataset_meta = meta
    visualizer._get_center_loc = place_of_name  # its own sorts all pixels in Python, for seconds
    values = np.asarray(labels.data[0]).astype(np.uint16)
    enlarged = imresize(values, large.shape[1::-1], interpolation='nearest')
    shown = SegDataSample(gt_sem_seg=PixelData(data=torch.from_numpy(enlarged.astype(np.int64))[None]))
    visualizer.add_datasample('', large, shown, draw_pred=False)
    return visualizer.get_image()


def place_of_name(mask: np.ndarray) -> np.ndarray:
    """Return x and y of the middle pixel of a mask's fullest row, the first of them.

    The mask is (H, W), 0 and 1.
    """
    row = np.count_nonzero(mask, axis=1).argmax()
    columns = np.flatnonzero(mask[row])
    return np.array([columns[len(columns) // 2], row])


def enlarge(image: np.ndarray, longest: int | None = None) -> np.ndarray:
    """Enlarge a small image to a longer side of `MIN_LONGER_SIDE`, reduce one to ``longest``; copy others."""
    side = max(image.shape[:2])
    factor = min(max(MIN_LONGER_SIDE, side), longest or np.inf) / side
    if factor == 1:
        return image.copy()
    height, width = (max(round(length * factor), 1) for length in image.shape[:2])
    return imresize(image, (width, height), interpolation='bicubic' if factor > 1 else 'area')


@functools.cache
def image_suffixes() -> frozenset[str]:
    """Return the suffixes of the images that can be written, such as '.png'."""
    Image.init()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in Image.SAVE)


def write_image(image: np.ndarray, path: str | Path) -> None:
    """Write an image, in the format of the path's suffix.

    Raises:
        DataError: It cannot be written.
    """
    suffix, encoded = Path(path).suffix.lower(), io.BytesIO()
    if suffix not in image_suffixes():
        raise DataError(f'{path}: an image needs a suffix such as .png or .jpg, not {suffix!r}')
    try:
        Image.fromarray(image).save(encoded, Image.registered_extensions()[suffix])
        write_bytes(path, encoded.getvalue())
    except (OSError, ValueError) as error:
        reason = getattr(error, 'strerror', None) or error
        raise DataError(f'cannot write {path}: {reason}') from error
