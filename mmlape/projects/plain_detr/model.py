"""Plain-DETR in MMDetection: a plain ViT, frozen or not, and one head; no pyramid and no deformable attention."""

import torch
from mmdet.models.detectors import SingleStageDetector
from mmengine.registry import MODELS
from torch import Tensor

from mmlape.errors import ConfigError
from mmlape.projects.plain_detr.windows import windowed


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
        patch_size = self.bbox_head.net.patch_size
        return (windowed(lambda images: torch.cat(self.backbone(images), 1), batch_inputs, self.windows, patch_size),)

    def best_objects(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return as many objects of each image as are kept: corners (B, N, 4) in pixels, scores and labels (B, N)."""
        boxes, scores, labels = self.bbox_head.objects(self.bbox_head(self.extract_feat(images)))
        height, width = images.shape[2:]
        return boxes.minimum(boxes.new_tensor((width, height, width, height))), scores, labels
