"""Large images in tiles: where tiles lie, and how what a model predicts on each becomes one prediction.

Logits are averaged where tiles overlap, as in MMSegmentation's slide mode, and become labels as soon
as no later tile covers them: of K classes there are at once those of a batch of tiles, and
K x overlap x (W or H) floats that later tiles continue. Objects of different tiles are merged by
class-wise non-maximum suppression; masks are kept as run lengths of the complete image.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product
from typing import Any, TypeAlias

import numpy as np
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from pycocotools import mask as coco_mask
from torch import Tensor, nn

from mmlape.errors import ConfigError

MAX_OVERLAP = 0.5
"""The IoU from which two objects of one class in different tiles are the same one."""
BORDER = 4
"""Pixels from a tile's border within which an object is taken to be cut by it."""
Window: TypeAlias = tuple[slice, slice]
"""Rows and columns of a tile."""


@dataclass(frozen=True)
class Tiling:
    """Square tiles of an image; the last ones lie at its right and lower border.

    Args:
        side: Of a tile, in pixels of the image as it is in the file.
        overlap: Pixels that neighbours share, the last ones more.

    Raises:
        ConfigError: There are no such tiles.
    """

    side: int
    overlap: int

    @classmethod
    def of(cls, tile: int, overlap: int | None = None, **_: Any) -> 'Tiling':
        """Build the tiles of a config: without an overlap they share an eighth of their side."""
        return cls(tile, tile // 8 if overlap is None else overlap)

    def __post_init__(self) -> None:
        if self.side < 1:
            raise ConfigError(f'tile={self.side} is no size: give the pixels of its side')
        if not 0 <= self.overlap < self.side:
            raise ConfigError(
                f'overlap={self.overlap} does not fit tile={self.side}: give 0 to {self.side - 1}, '
                'at least the size of a large object'
            )

    def starts(self, length: int) -> list[int]:
        """Return the first pixel of each tile along a side of an image."""
        last = max(length - self.side, 0)
        stride = self.side - self.overlap
        return [*range(0, last, stride), last]

    def windows(self, height: int, width: int) -> list[Window]:
        """Return the rows and columns of each tile of an image, in the order of `merge_logits`."""
        rows, columns = (
            [slice(start, min(start + self.side, length)) for start in self.starts(length)]
            for length in (height, width)
        )
        if self.by_columns(height, width):
            return [(y, x) for x, y in product(columns, rows)]
        return list(product(rows, columns))

    def by_columns(self, height: int, width: int) -> bool:
        """Return whether less has to be kept if tiles are predicted column by column."""
        return self.shared(width) * height < self.shared(height) * width

    def shared(self, length: int) -> int:
        """Return how many pixels the neighbours along a side share that share most."""
        starts = self.starts(length)
        return max((self.side - (b - a) for a, b in pairwise(starts)), default=0)

    def counts(self, length: int) -> Tensor:
        """Return by how many tiles each pixel along a side is covered, (length,)."""
        counts = torch.zeros(length)
        for start in self.starts(length):
            counts[start : start + self.side] += 1
        return counts


def tiling_of(tile: int, overlap: int | None, task: str, smallest: int, test_cfg: Mapping | None) -> Tiling:
    """Return tiles on which a model can predict.

    Args:
        tile: Their side.
        overlap: Pixels that neighbours share; see `Tiling.of`.
        task: The model's.
        smallest: The side of its patches.
        test_cfg: The model's own, which may have a slide mode.

    Raises:
        ConfigError: There are none.
    """
    tiling = Tiling.of(tile, overlap)
    if task not in ('detection', 'segmentation'):
        raise ConfigError(f'tile={tile} is for detectors and segmentors, not {task}')
    what = 'a patch'
    if test_cfg and test_cfg.get('mode') == 'slide':
        smallest, what = max(test_cfg['crop_size']), "the window of the model's slide mode"
    if tile < smallest:
        raise ConfigError(f'tile={tile} is smaller than {what}, {smallest} pixels: give {smallest} or more')
    return tiling


def predict_tiles(
    model: nn.Module,
    predict: Callable[[Sequence[Window]], Sequence[BaseDataElement]],
    tiling: Tiling,
    size: tuple[int, int],
    batch_size: int,
    max_per_img: int | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> BaseDataElement:
    """Predict on an image tile by tile, and return a data sample of the complete image.

    Args:
        model: A detector, or a segmentor.
        predict: Returns what it predicts on the tiles of a batch.
        tiling: The tiles.
        size: Height and width of the image.
        batch_size: Tiles at once.
        max_per_img: So many of the objects are kept, the most certain ones; None for all.
        watch: Called with the number of tiles that are done, from 0, and of all.
    """
    windows = tiling.windows(*size)

    def samples() -> Iterator[BaseDataElement]:
        for start in range(0, len(windows), batch_size):
            if watch:
                watch(start, len(windows))
            yield from (sample.cpu() for sample in predict(windows[start : start + batch_size]))
        if watch:
            watch(len(windows), len(windows))

    stream = samples()
    first = next(stream)
    stream = chain([first], stream)
    merged = type(first)(metainfo=dict(first.metainfo, ori_shape=size, img_shape=size))
    if 'seg_logits' in first:
        threshold = model.decode_head.threshold if len(first.seg_logits.data) == 1 else None
        labels = merge_logits((sample.seg_logits.data for sample in stream), tiling, size, threshold)
        merged.pred_sem_seg = PixelData(data=labels[None])
    else:
        objects = [encoded(objects_of(sample), window, size) for sample, window in zip(stream, windows)]
        merged.pred_instances = merge_objects(objects, windows, size, max_per_img)
    return merged


def objects_of(sample: BaseDataElement) -> InstanceData:
    """Return the objects that a detector has predicted; ConfigError if it predicts none."""
    if 'pred_instances' not in sample:
        raise ConfigError('the model predicts no objects: a panoptic model needs model.test_cfg.instance_on=True')
    return sample.pred_instances


def encoded(objects: InstanceData, window: Window, size: tuple[int, int]) -> InstanceData:
    """Return the objects of a tile with masks as run lengths of the complete image."""
    chosen = InstanceData(bboxes=objects.bboxes, scores=objects.scores, labels=objects.labels)
    if 'masks' in objects:
        chosen.masks = [encode_mask(mask, window, size) for mask in np.asarray(objects.masks)]
    return chosen


def merge_logits(
    logits: Iterator[Tensor], tiling: Tiling, size: tuple[int, int], threshold: float | None = None
) -> Tensor:
    """Average the logits of tiles and return the label of each pixel, (H, W), int64.

    Args:
        logits: (K, h, w) of each tile, in the order of ``Tiling.windows``; they are changed.
        tiling: The tiles.
        size: Height and width of the image.
        threshold: Of a model with one output, the probability above which the label is 1.
    """
    height, width = size
    if tiling.by_columns(height, width):
        turned = (values.mT for values in logits)
        return merge_rows(turned, tiling, (width, height), threshold).T
    return merge_rows(logits, tiling, size, threshold)


def merge_rows(logits: Iterator[Tensor], tiling: Tiling, size: tuple[int, int], threshold: float | None) -> Tensor:
    """Do as `merge_logits` of tiles that come row by row."""
    height, width = size
    labels = torch.empty(size, dtype=torch.long)
    rows, columns = tiling.starts(height), tiling.starts(width)
    count_y, count_x = tiling.counts(height), tiling.counts(width)
    # sums that the next row of tiles continues, in the first ``kept`` rows of (K, rows, W)
    band: Tensor | None = None
    kept = 0
    for y, next_y in zip(rows, [*rows[1:], height]):
        # those that the next tile of this row continues, (K, h, columns)
        right: Tensor | None = None
        for x, next_x in zip(columns, [*columns[1:], width]):
            sums = next(logits)
            if band is None:
                band = sums.new_zeros((len(sums), tiling.shared(height), width))
            if right is not None:
                sums[..., : right.shape[2]] += right
            right = sums[..., next_x - x :].clone()
            sums = sums[..., : next_x - x]
            sums[:, :kept] += band[:, :kept, x:next_x]
            lower = sums[:, next_y - y :]
            band[:, : lower.shape[1], x:next_x] = lower
            mean = sums[:, : next_y - y]
            mean /= count_y[y:next_y, None] * count_x[x:next_x]
            chosen = mean.argmax(0) if threshold is None else mean[0] > threshold
            labels[y:next_y, x:next_x] = chosen
        kept = lower.shape[1]
    return labels


def merge_objects(
    found: Sequence[InstanceData], windows: Sequence[Window], size: tuple[int, int], max_per_img: int | None = None
) -> InstanceData:
    """Move the objects of tiles to their places in the image, and leave out those found twice.

    Complete objects go before those that a border between tiles cuts, then the more certain ones.
    An object is left out if an earlier one of its class in another tile has an IoU above
    `MAX_OVERLAP` with it. Of one that is cut it is the share of its own box, since a part of an
    object lies in the complete one, and of two that are cut the share of the smaller box.

    Args:
        found: The boxes, scores, labels and, as run lengths of the image, masks of each tile.
        windows: Rows and columns of each tile.
        size: Height and width of the image.
        max_per_img: So many are kept, the most certain ones; None for all.
    """
    boxes, cut, tiles = [], [], []
    for number, (objects, (rows, columns)) in enumerate(zip(found, windows)):
        moved = objects.bboxes + torch.tensor([columns.start, rows.start] * 2)
        inner = torch.tensor([columns.start > 0, rows.start > 0, columns.stop < size[1], rows.stop < size[0]])
        borders = torch.tensor([columns.start, rows.start, columns.stop, rows.stop])
        cut.append((((moved - borders).abs() <= BORDER) & inner).any(1))
        tiles.append(torch.full((len(moved),), number))
        boxes.append(moved)
    merged = InstanceData(
        bboxes=torch.cat(boxes),
        scores=torch.cat([objects.scores for objects in found]),
        labels=torch.cat([objects.labels for objects in found]),
    )
    if all('masks' in objects for objects in found):
        merged.masks = [mask for objects in found for mask in objects.masks]
    values = (merged.bboxes, merged.scores, merged.labels, torch.cat(tiles), torch.cat(cut))
    merged = merged[torch.from_numpy(found_once(*(value.numpy() for value in values)))]
    if max_per_img is not None and len(merged) > max_per_img:
        merged = merged[merged.scores.argsort(descending=True, stable=True)[:max_per_img]]
    return merged


def found_once(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, tiles: np.ndarray, cut: np.ndarray
) -> np.ndarray:
    """Return the places of the objects that `merge_objects` keeps, in their order."""
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept = []
    for label in np.unique(labels):
        left = np.flatnonzero(labels == label)
        left = left[np.lexsort((-scores[left], cut[left]))]
        while len(left):
            best, left = left[0], left[1:]
            kept.append(best)
            lower = np.maximum(boxes[best, :2], boxes[left, :2])
            upper = np.minimum(boxes[best, 2:], boxes[left, 2:])
            shared = (upper - lower).clip(min=0).prod(1)
            part = np.minimum(areas[best], areas[left]) if cut[best] else areas[left]
            whole = np.where(cut[left], part, areas[best] + areas[left] - shared)
            left = left[(tiles[best] == tiles[left]) | (shared <= MAX_OVERLAP * whole)]
    return np.sort(np.array(kept, dtype=np.int64))


def encode_mask(mask: np.ndarray, window: Window, size: tuple[int, int]) -> dict:
    """Return COCO's run lengths of a tile's mask (h, w) in the complete image, which is not allocated."""
    height, width = size
    ys, xs = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    if not len(ys):
        return coco_mask.frPyObjects(dict(size=[height, width], counts=[height * width]), *size)
    top, left = window[0].start + ys[0], window[1].start + xs[0]
    # the mask's box, transposed, between zeros: pixels are counted column by column, as COCO does
    inside = np.pad(mask[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1].T, ((0, 0), (1, 1)))
    changes = np.diff(inside.astype(np.int8), axis=1)
    starts, ends = ((left + x) * height + top + y for x, y in (np.nonzero(changes == 1), np.nonzero(changes == -1)))
    # a run that ends where the next one begins, at the end of a column, is one with it
    joined = starts[1:] == ends[:-1]
    starts, ends = (starts[np.r_[True, ~joined][: len(starts)]], ends[np.r_[~joined, True][: len(ends)]])
    edges = np.stack((starts, ends), 1).ravel()
    counts = np.diff(np.r_[0, edges, height * width])
    if counts[-1] == 0:  # COCO writes no empty run at the end
        counts = counts[:-1]
    return coco_mask.frPyObjects(dict(size=[height, width], counts=counts.tolist()), *size)
