"""Plain-DETR in MMDetection: a plain ViT, frozen or not, and one head; no pyramid and no deformable attention.

DINOv3 (2508.10104) reads windows of an image beside the complete one: an image is cut into n x n windows of complete
patches, of which the last ones may be smaller. The map is that of the image, resized to the size of a window and back,
and those of the windows side by side, concatenated.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmdet.models.detectors import SingleStageDetector
from mmdet.models.utils import unpack_gt_instances
from mmdet.structures import SampleList
from mmdet.utils import reduce_mean
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from mmengine.structures import InstanceData
from torch import Tensor
from torchvision.ops import box_convert

from mmlape.errors import ConfigError, DataError
from mmlape.models.grid import Grid
from mmlape.projects.plain_detr.layers import to_corners
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
        targets = [Objects(box_convert(objects.bboxes, 'xyxy', 'cxcywh'), objects.labels) for objects in instances]
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


def sides(size: int, count: int, patch_size: int) -> list[int]:
    """Return the sides of windows along an axis of an image.

    Raises:
        DataError: If nothing is left for the last one.
    """
    side = -(-(size // count) // patch_size) * patch_size
    last = size - side * (count - 1)
    if last <= 0:
        raise DataError(
            f'an image with a side of {size} pixels has no {count} windows of patches of {patch_size}: '
            'give larger images, or set windows to less'
        )
    return [side] * (count - 1) + [last]


def windowed(backbone: Callable[[Tensor], Tensor], images: Tensor, count: int, patch_size: int) -> Tensor:
    """Return the map (B, 2 C, h, w) of images (B, 3, H, W) by a backbone with maps of C channels.

    Args:
        backbone: Makes a map of images.
        images: Normalised.
        count: How many windows there are along each axis.
        patch_size: Of the backbone.
    """
    heights, widths = (sides(size, count, patch_size) for size in images.shape[2:])
    rows = [torch.cat([backbone(window) for window in row.split(widths, 3)], 3) for row in images.split(heights, 2)]
    local = torch.cat(rows, 2)
    together = backbone(_resized(images, (heights[0], widths[0])))
    return torch.cat((_resized(together, tuple(local.shape[2:])), local), 1)


def _resized(maps: Tensor, size: Grid) -> Tensor:
    return F.interpolate(maps, size, mode='bilinear', antialias=True)


class PlainDETR(SingleStageDetector):
    """Plain-DETR over the maps of some layers of a ViT, which are concatenated.

    Args:
        backbone: A plain ViT of this package.
        bbox_head: Options of ``PlainDETRHead``, without ``in_channels`` and ``patch_size``, which are the backbone's.
        windows: How many windows along each axis of an image the ViT sees beside the complete one, as in
            DINOv3; 1 for the image alone.
        train_cfg: Not used.
        test_cfg: ``max_per_img``, how many objects are kept of an image.
        data_preprocessor: As of MMDetection's detectors.
        init_cfg: As of any module.

    Raises:
        ConfigError: If the backbone's outputs are no maps of one stride.
    """

    def __init__(
        self,
        backbone: dict,
        bbox_head: dict,
        windows: int = 1,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ):
        super(SingleStageDetector, self).__init__(data_preprocessor, init_cfg)
        self.backbone, self.windows = MODELS.build(backbone), windows
        strides = getattr(self.backbone, 'strides', ())
        if len(set(strides)) != 1:
            has = f'maps of strides {", ".join(map(str, strides))}' if strides else 'no maps of patches'
            raise ConfigError(
                f'mmlape.PlainDETR: {backbone["type"]} has {has}, and one stride is read: take mmlape.TimmViT or '
                "mmlape.VisionTransformer, with out_type='featmap'"
            )
        channels = self.backbone.embed_dims * len(strides) * (1 if windows == 1 else 2)
        given = dict(in_channels=channels, patch_size=strides[0], train_cfg=train_cfg, test_cfg=test_cfg)
        self.bbox_head = MODELS.build({'type': 'mmlape.PlainDETRHead', **bbox_head, **given})
        self.train_cfg, self.test_cfg = train_cfg, test_cfg

    def extract_feat(self, batch_inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the maps (B, C, h, w) of images (B, 3, H, W)."""
        if self.windows == 1:
            return self.backbone(batch_inputs)
        return (self.read_layers(batch_inputs),)

    def read_layers(self, images: Tensor) -> Tensor:
        """Return the map (B, 2 C, h, w) of windows, and of the image beside them."""
        patch_size = self.bbox_head.net.patch_size
        return windowed(lambda part: torch.cat(self.backbone(part), 1), images, self.windows, patch_size)

    def best_objects(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return as many objects of each image as are kept: corners (B, N, 4) in pixels, scores and labels (B, N)."""
        boxes, scores, labels = self.bbox_head.objects(self.bbox_head(self.extract_feat(images)))
        height, width = images.shape[2:]
        return boxes.minimum(boxes.new_tensor((width, height, width, height))), scores, labels
