"""Detectors with two stages as graphs.

Boxes, scores, labels and masks of a fixed number of objects. Every shape depends on the image's
size alone. Where a model has fewer boxes, the rest are empty ones: zeros of score -1, whose regions
are pooled from no sample at all.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmcv.ops import RoIAlign
from mmdet.models.dense_heads import RPNHead
from mmdet.models.detectors import TwoStageDetector
from mmdet.models.roi_heads import StandardRoIHead
from mmdet.models.roi_heads.mask_heads import FCNMaskHead
from mmdet.models.roi_heads.mask_heads.fcn_mask_head import _do_paste_mask
from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
from mmdet.models.task_modules.coders import DeltaXYWHBBoxCoder
from mmdet.models.task_modules.coders.delta_xywh_bbox_coder import delta2bbox
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import bbox2roi
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.ops import roi_align

from mmlape.errors import ExportError
from mmlape.lab.export.graphs import Exported, Outputs
from mmlape.lab.export.graphs.operators import best_boxes, largest
from mmlape.lab.export.graphs.session import FLOAT, INTEGER, Graph, Input, Size


class ExportedDetector(Exported):
    """Mask R-CNN or Faster R-CNN of MMDetection, with suppression of overlapping boxes.

    The outputs of N = ``test_cfg.rcnn.max_per_img`` objects of each of B images, by falling score,
    are ``boxes`` (B, N, 4), left, top, right, bottom in pixels of the image, ``scores`` (B, N),
    ``labels`` (B, N), int64, and of a model with masks ``masks`` (B, N, 28, 28): how likely the
    object covers a place of its box.
    """

    task = 'detection'

    def __init__(self, model: nn.Module, given: Input) -> None:
        super().__init__(model, given)
        self.outputs = ('boxes', 'scores', 'labels', *(['masks'] if _has_masks(model) else []))

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Return whether it is a detector with two stages."""
        return isinstance(model, TwoStageDetector)

    @staticmethod
    def check(model: nn.Module) -> None:
        """Check that each part is one whose steps are written here."""
        reason = next(_unknown_parts(model), None)
        if reason:
            raise ExportError(f'{type(model).__name__} cannot be exported: {reason}; --backbone exports the backbone')

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return boxes, scores, labels and masks."""
        size = tuple(images.shape[2:])
        maps = self.model.extract_feat(self.given.normalise(images))
        proposals, certain = self._proposals(maps, size)
        boxes, scores, labels = self._objects(maps, proposals, certain > 0, size)
        found = (boxes, scores, labels)
        return (*found, self._masks(maps, boxes, labels)) if 'masks' in self.outputs else found

    def _proposals(self, maps: Sequence[Tensor], size: Size) -> tuple[Tensor, Tensor]:
        """Return boxes (B, P, 4) and their scores (B, P)."""
        head = self.model.rpn_head
        cfg = head.test_cfg
        scores, deltas = head(maps)
        anchors = head.prior_generator.grid_priors(
            [level.shape[-2:] for level in scores], dtype=scores[0].dtype, device=scores[0].device
        )
        levels = [self._level(*level, size) for level in zip(scores, deltas, anchors)]
        most = max(boxes.shape[1] for boxes, _ in levels)
        boxes = torch.stack([nn.functional.pad(boxes, (0, 0, 0, most - boxes.shape[1])) for boxes, _ in levels], 1)
        certain = torch.stack([nn.functional.pad(row, (0, most - row.shape[1]), value=-1.0) for _, row in levels], 1)
        place, best = best_boxes(boxes, certain, cfg.nms.iou_threshold, 0.0, cfg.max_per_img, by_place=False)
        return _rows(boxes.flatten(1, 2), place) * (best > 0)[..., None], best

    def _level(self, scores: Tensor, deltas: Tensor, anchors: Tensor, size: Size) -> tuple[Tensor, Tensor]:
        """Return the boxes of the best anchors of a level.

        They are (B, n, 4), and their scores (B, n), -1 for a box too small.
        """
        head = self.model.rpn_head
        rows = scores.permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, head.cls_out_channels))
        certain = rows.sigmoid()[..., 0] if head.use_sigmoid_cls else rows.softmax(-1)[..., 0]
        shifts = deltas.permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, 4))
        anchors = anchors.expand(shifts.shape[0], -1, -1)
        if 0 < head.test_cfg.nms_pre < certain.shape[1]:
            certain, place = largest(certain, head.test_cfg.nms_pre)
            shifts, anchors = _rows(shifts, place), _rows(anchors, place)
        boxes = _decode(head.bbox_coder, anchors.flatten(0, 1), shifts.flatten(0, 1), size)
        boxes = boxes.view(-1, certain.shape[1], 4)
        least = head.test_cfg.get('min_bbox_size', -1)
        if least >= 0:
            sides = boxes[..., 2:] - boxes[..., :2]
            certain = torch.where((sides > least).all(-1), certain, -1.0)
        return boxes, certain

    def _objects(
        self, maps: Sequence[Tensor], proposals: Tensor, used: Tensor, size: Size
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes (B, N, 4), scores (B, N) and labels (B, N)."""
        roi_head, count = self.model.roi_head, proposals.shape[1]
        head, cfg = roi_head.bbox_head, roi_head.test_cfg
        logits, deltas = head(pool(roi_head.bbox_roi_extractor, maps, proposals))
        certain = logits.softmax(-1)[:, :-1].unflatten(0, (-1, count))  # (B, P, classes)
        scores = torch.where(used[..., None], certain, -1.0).transpose(1, 2)
        each = 1 if head.reg_class_agnostic else head.num_classes
        starts = proposals.flatten(0, 1)[:, None].expand(-1, each, -1).flatten(0, 1)
        boxes = _decode(head.bbox_coder, starts, deltas.reshape(-1, 4), size)
        boxes = boxes.view(-1, count, each, 4).transpose(1, 2)
        boxes = boxes.expand(-1, scores.shape[1], -1, -1).contiguous()
        place, best = best_boxes(
            boxes, scores.contiguous(), cfg.nms.iou_threshold, cfg.score_thr, cfg.max_per_img, by_place=True
        )
        found = best > 0
        boxes = _rows(boxes.flatten(1, 2), place) * found[..., None]
        return boxes, best, torch.where(found, place // count, 0)

    def _masks(self, maps: Sequence[Tensor], boxes: Tensor, labels: Tensor) -> Tensor:
        """Return the mask of each object in its box, (B, N, 28, 28)."""
        roi_head = self.model.roi_head
        logits = roi_head.mask_head(pool(roi_head.mask_roi_extractor, maps, boxes))
        masks = _of_classes(logits, labels.flatten()).sigmoid()
        return masks.unflatten(0, (-1, labels.shape[1]))

    def predicted(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return MMDetection's objects, behind them empty ones."""
        inputs = self.given.normalise(images)
        samples = self.model.predict(inputs, _samples(images), rescale=False)
        roi_head, most = self.model.roi_head, self.model.roi_head.test_cfg.max_per_img
        maps = self.model.extract_feat(inputs)
        rows = []
        for place, sample in enumerate(samples):
            objects = sample.pred_instances
            found = [objects.bboxes, objects.scores, objects.labels]
            if roi_head.with_mask:
                own = [level[place : place + 1] for level in maps]
                logits = roi_head._mask_forward(own, bbox2roi([objects.bboxes]))['mask_preds']
                found.append(_of_classes(logits, objects.labels).sigmoid())
            empty = [value.new_zeros(most - len(objects), *value.shape[1:]) for value in found]
            empty[1] -= 1
            rows.append([torch.cat(parts) for parts in zip(found, empty)])
        return tuple(torch.stack(parts) for parts in zip(*rows))

    def difference(self, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
        """Compare each object with the nearest one of its class; objects of nearly equal score may change places.

        An object that the others lack is as far away as its score lies above the lowest one that they would have.
        """
        return max(max(apart, default=0.0) for apart in self._apart(ours, theirs))

    def difference_of_predicted(self, predicted: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> float:
        """Compare as `difference` does, all objects of an image but one and a twentieth.

        Where two boxes overlap as much as `iou_threshold` up to rounding, another one is
        suppressed: MMDetection shifts the boxes of each class by thousands of pixels first.
        """
        kept = [sorted(apart)[: -1 - len(apart) // 20] for apart in self._apart(predicted, outputs)]
        return max(max(apart, default=0.0) for apart in kept)

    @property
    def least_score(self) -> float:
        """The score that each object exceeds."""
        return self.model.roi_head.test_cfg.score_thr

    def _apart(self, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> Iterator[list[float]]:
        """Yield how far the objects of each image are from the others, both ways."""
        least = self.least_score
        for one, other in zip(zip(*ours), zip(*theirs), strict=True):
            yield _unmatched(one, other, least)
            yield _unmatched(other, one, least)

    def is_empty(self, outputs: Sequence[np.ndarray]) -> bool:
        """Return whether no image has two objects: `difference_of_predicted` leaves out one."""
        return bool(((outputs[self.outputs.index('scores')] > 0).sum(1) < 2).all())

    @staticmethod
    def declared(model: nn.Module, graph: Graph) -> dict[str, tuple[str, tuple]]:
        """Return the outputs of as many objects as the graph has boxes."""
        count = next(iter(graph.shape('boxes')[1:]), None)
        found = dict(boxes=(FLOAT, (count, 4)), scores=(FLOAT, (count,)), labels=(INTEGER, (count,)))
        return found | (dict(masks=(FLOAT, (count, None, None))) if _has_masks(model) else {})

    @staticmethod
    def install(model: nn.Module, outputs: Outputs) -> None:
        """Replace ``predict``; masks are pasted as MMDetection pastes them."""
        threshold = (getattr(model, 'roi_head', model).test_cfg or {}).get('mask_thr_binary', 0.5)

        def predict(inputs: Tensor, samples: list, rescale: bool = True) -> list:
            results = []
            for sample, objects in zip(samples, zip(*outputs(inputs))):
                boxes, scores, labels, *masks = objects
                found = scores > 0
                boxes, scores, labels = boxes[found], scores[found], labels[found]
                height, width = sample.img_shape[:2]
                boxes = boxes.minimum(boxes.new_tensor((width, height, width, height)))
                shape = (height, width)
                if rescale:
                    boxes = boxes / boxes.new_tensor(sample.scale_factor).repeat(2)
                    shape = tuple(sample.ori_shape[:2])
                result = InstanceData(bboxes=boxes, scores=scores, labels=labels)
                if masks:
                    result.masks = paste(masks[0][found], boxes, shape, threshold)
                results.append(result)
            return model.add_pred_to_datasample(samples, results)

        model.predict = predict


class ExportedQueries(ExportedDetector):
    """A detector without suppression, which says itself what its objects are.

    Its ``best_objects`` returns of normalised images boxes (B, N, 4) in pixels, scores and labels (B, N), by falling
    score.
    """

    least_score = 0.0

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Return whether it has ``best_objects``."""
        return hasattr(model, 'best_objects')

    @staticmethod
    def check(model: nn.Module) -> None:
        """Check nothing."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return boxes, scores and labels."""
        return self.model.best_objects(self.given.normalise(images))

    def predicted(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return MMDetection's objects."""
        samples = self.model.predict(self.given.normalise(images), _samples(images))
        found = [sample.pred_instances for sample in samples]
        return tuple(torch.stack([one[key] for one in found]) for key in ('bboxes', 'scores', 'labels'))


EXPORTED = (ExportedDetector, ExportedQueries)


def _has_masks(model: nn.Module) -> bool:
    return hasattr(model, 'roi_head') and model.roi_head.with_mask


def _unknown_parts(model: nn.Module) -> Iterator[str]:
    """Yield what of a detector has other steps than those that are written here."""
    roi_head = model.roi_head
    parts = [('rpn_head', getattr(model, 'rpn_head', None), RPNHead), ('roi_head', roi_head, StandardRoIHead)]
    if type(roi_head) is StandardRoIHead:
        parts.append(('roi_head.bbox_roi_extractor', roi_head.bbox_roi_extractor, SingleRoIExtractor))
        if roi_head.with_mask:
            parts.append(('roi_head.mask_roi_extractor', roi_head.mask_roi_extractor, SingleRoIExtractor))
            parts.append(('roi_head.mask_head', roi_head.mask_head, FCNMaskHead))
    for key, part, known in parts:
        if type(part) is not known:
            yield f'its {key} is {type(part).__name__}, and the graph knows {known.__name__}'
    layers = [*roi_head.bbox_roi_extractor.roi_layers]
    if roi_head.with_mask:
        layers += roi_head.mask_roi_extractor.roi_layers
    if any(not isinstance(layer, RoIAlign) or layer.pool_mode != 'avg' for layer in layers):
        yield 'its regions are not pooled by RoIAlign with pool_mode=avg'
    if roi_head.with_shared_head or roi_head.bbox_head.custom_cls_channels:
        yield 'its roi_head has a shared head or activations of its own'
    for key, nms in (('rpn', model.rpn_head.test_cfg.nms), ('rcnn', roi_head.test_cfg.nms)):
        other = set(nms) - {'type', 'iou_threshold', 'split_thr', 'class_agnostic'}
        if nms.get('type', 'nms') != 'nms' or other or nms.get('class_agnostic'):
            yield f"test_cfg.{key}.nms={dict(nms)}, and the graph knows dict(type='nms', iou_threshold=...)"


def _samples(images: Tensor) -> list[DetDataSample]:
    """Return what MMDetection knows of images that are not resized."""
    size = tuple(images.shape[2:])
    meta = dict(img_shape=size, ori_shape=size, batch_input_shape=size, scale_factor=(1.0, 1.0))
    return [DetDataSample(metainfo=meta) for _ in images]


def pool(extractor: SingleRoIExtractor, maps: Sequence[Tensor], boxes: Tensor) -> Tensor:
    """Pool regions, (B, n, 4), as the extractor does, into (B * n, C, h, w).

    On every level, empty boxes in place of those of other levels.
    """
    maps = maps[: extractor.num_inputs]
    images = torch.arange(boxes.shape[0], device=boxes.device).to(boxes)[:, None, None]
    regions = torch.cat([images.expand(-1, boxes.shape[1], -1), boxes], -1).flatten(0, 1)
    level = extractor.map_roi_levels(regions, len(maps))
    total = None
    for number, (layer, features) in enumerate(zip(extractor.roi_layers, maps)):
        on_level = level == number
        part = roi_align(
            features, regions * on_level[:, None], layer.output_size, layer.spatial_scale, layer.sampling_ratio,
            layer.aligned,
        ) * on_level[:, None, None, None]  # fmt: skip
        total = part if total is None else total + part
    return total


def _decode(coder: Any, boxes: Tensor, deltas: Tensor, size: Sequence[int]) -> Tensor:
    """Decode (N, 4) boxes, clipped to an image.

    The coder's own ``decode`` imports what MMDetection no longer has where an exporter says that it runs.
    """
    if type(coder) is not DeltaXYWHBBoxCoder:
        return coder.decode(boxes, deltas, max_shape=size)
    clamp = coder.clip_border, coder.add_ctr_clamp, coder.ctr_clamp
    return delta2bbox(boxes, deltas, coder.means, coder.stds, size, 16 / 1000, *clamp)


def _rows(values: Tensor, places: Tensor) -> Tensor:
    """Return rows of (B, N, C), (B, n, C), by their places in each image, (B, n)."""
    return values.gather(1, places[..., None].expand(-1, -1, values.shape[2]))


def paste(masks: Tensor, boxes: Tensor, size: Size, threshold: float) -> Tensor:
    """Return the mask of each object on the image, (N, H, W), bool.

    Args:
        masks: In their boxes, (N, h, w).
        boxes: (N, 4), in pixels of the image.
        size: Height and width of the image.
        threshold: Pixels with at least this value are the object's.
    """
    whole = torch.zeros(len(masks), *size, dtype=torch.bool, device=masks.device)
    for place in range(len(masks)):
        one = slice(place, place + 1)
        values, where = _do_paste_mask(masks[one, None], boxes[one], *size, skip_empty=True)
        whole[(one, *where)] = values >= threshold
    return whole


def _unmatched(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], least: float) -> list[float]:
    """Return how far each of our objects is from theirs; boxes in shares of the longest side."""
    boxes, scores, labels, *masks = ours
    other_boxes, other_scores, other_labels, *other_masks = theirs
    if not all(np.isfinite(values).all() for values in (*ours, *theirs)):
        return [np.inf] * (2 + 2 * len(scores) + 2 * len(other_scores))  # too many to be left out
    side = max(boxes.max(initial=1), 1)
    # -1 where there is room for more
    lowest = max(float(min(other_scores, default=-1)), least)
    unmatched = []
    for place in np.flatnonzero(scores > 0):
        apart = [float(scores[place]) - lowest]
        for other in np.flatnonzero((other_labels == labels[place]) & (other_scores > 0)):
            parts = [(boxes[place] / side, other_boxes[other] / side), (scores[place], other_scores[other])]
            parts += [(mine[place], their[other]) for mine, their in zip(masks, other_masks)]
            apart.append(max(float(np.abs(one - two).max()) for one, two in parts))
        unmatched.append(min(apart))
    return unmatched


def _of_classes(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mask of each object's class, (N, 28, 28), of (N, classes or 1, 28, 28)."""
    chosen = labels if logits.shape[1] > 1 else torch.zeros_like(labels)
    places = chosen[:, None, None, None].expand(-1, 1, *logits.shape[2:])
    return logits.gather(1, places)[:, 0]
