"""Plain-DETR's head in MMDetection."""

from collections.abc import Sequence
from typing import Any

import torch
from mmdet.models.utils import unpack_gt_instances
from mmdet.structures import SampleList
from mmdet.utils import reduce_mean
from mmengine.model import BaseModule
from mmengine.structures import InstanceData
from torch import Tensor

from mmlape.projects.plain_detr.boxes import from_corners, to_corners
from mmlape.projects.plain_detr.losses import Objects, losses
from mmlape.projects.plain_detr.net import Detections, PlainDETRNet


class PlainDETRHead(BaseModule):
    """Plain-DETR's head over one map, with its losses.

    Args:
        in_channels: Of the map.
        num_classes: Number of classes.
        patch_size: Of the ViT.
        many: k, how many of the further queries are matched with each object in training.
        many_weight: lambda, what their losses are multiplied by.
        train_cfg: Not used.
        test_cfg: ``max_per_img``, how many objects are kept of an image; by default 100.
        init_cfg: As of any module.
        **options: Of ``PlainDETRNet``, ``num_queries`` and ``num_aux_queries`` among them.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        patch_size: int = 16,
        many: int = 6,
        many_weight: float = 1.0,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        init_cfg: dict | None = None,
        **options: Any,
    ):
        super().__init__(init_cfg)
        self.num_classes, self.many, self.many_weight = num_classes, many, many_weight
        self.max_per_img = (test_cfg or {}).get('max_per_img', 100)
        self.net = PlainDETRNet(in_channels, num_classes, patch_size, **options)

    def forward(self, maps: Sequence[Tensor], sizes: Sequence[tuple[int, int]] = ()) -> Detections:
        """Detect objects on maps (B, C, h, w) of images with (height, width) in ``sizes`` before padding."""
        features = torch.cat(list(maps), 1)
        patch = self.net.patch_size
        grids = [(-(-height // patch), -(-width // patch)) for height, width in sizes]
        # without padding no cell is masked
        return self.net(features, grids if any(grid != tuple(features.shape[2:]) for grid in grids) else None)

    def loss(self, maps: Sequence[Tensor], samples: SampleList) -> dict[str, Tensor]:
        """Return the losses."""
        instances, _, metas = unpack_gt_instances(samples)
        found = self(maps, [meta['img_shape'][:2] for meta in metas])
        targets = [Objects(from_corners(objects.bboxes), objects.labels) for objects in instances]
        return dict(losses(found, targets, self.net.num_queries, self.many, self.many_weight, reduce_mean))

    def objects(self, found: Detections) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best objects of each image: corners (B, N, 4) in pixels, scores and labels (B, N)."""
        last = found.layers[-1]
        scores = last.logits.sigmoid().flatten(1)
        best, places = scores.topk(min(self.max_per_img, scores.shape[1]), 1)
        rows = (places // self.num_classes)[..., None].expand(-1, -1, 4)
        return to_corners(last.boxes).gather(1, rows), best, places % self.num_classes

    def predict(self, maps: Sequence[Tensor], samples: SampleList, rescale: bool = True) -> list[InstanceData]:
        """Return the best objects of each image, of the original size if ``rescale``."""
        metas = [sample.metainfo for sample in samples]
        found = self(maps, [meta['img_shape'][:2] for meta in metas])
        results = []
        for meta, boxes, scores, labels in zip(metas, *self.objects(found)):
            height, width = meta['img_shape'][:2]
            boxes = boxes.minimum(boxes.new_tensor((width, height, width, height)))
            if rescale:
                boxes = boxes / boxes.new_tensor(meta['scale_factor']).repeat(2)
            results.append(InstanceData(bboxes=boxes, scores=scores, labels=labels))
        return results
