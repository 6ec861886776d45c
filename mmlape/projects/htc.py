"""HTC++ (Hybrid Task Cascade, CVPR 2019) as ViT-Adapter uses it: RoI head, attention on the last map, InstaBoost.

With the features r of a box, stage t's mask head h_t and its convolution g_t,

    f_t, m_t = h_t(r + g_t(f_{t-1})),    mask = mean_t sigmoid(m_t)

The released models' figures are those of the mean (mmdetection 2); mmdetection 3 predicts
sigmoid(m_3). The last map goes through a transformer layer:

    x <- x + Attention(LN(x));  x <- x + FFN(LN(x));  x <- LN(x)

The package of InstaBoost (arXiv 1908.07801), which moves the objects of an image a little, is no
part of the stack.
"""

import torch.nn.functional as F
from mmcv.cnn.bricks import DropPath
from mmcv.transforms import BaseTransform
from mmdet.models.roi_heads import HybridTaskCascadeRoIHead as PlainHead
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.errors import ConfigError
from mmlape.lab.environment import importable
from mmlape.models.grid import contiguous, to_maps
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.transformer_layer import FFN
from mmlape.models.named_layers import init_linear
from mmlape.registry import TRANSFORMS


class HybridTaskCascadeRoIHead(PlainHead):
    """mmdetection's head, whose predicted masks are the mean over its stages."""

    def _mask_forward(
        self,
        stage: int,
        x: tuple[Tensor, ...],
        rois: Tensor,
        semantic_feat: Tensor | None = None,
        training: bool = True,
    ) -> dict:
        """Return the mask logits of a stage, or of all where a prediction needs them, each (boxes, classes, H, W)."""
        if training:
            return super()._mask_forward(stage, x, rois, semantic_feat)
        pool = self.mask_roi_extractor[stage]
        regions = pool(x[: pool.num_inputs], rois)  # (boxes, C, h, w)
        if self.with_semantic and 'mask' in self.semantic_fusion:
            semantic = self.semantic_roi_extractor([semantic_feat], rois)
            regions = regions + F.adaptive_avg_pool2d(semantic, regions.shape[-2:])
        logits, features = [], None
        for head in self.mask_head:
            of_stage, features = head(regions, features if self.mask_info_flow else None)
            logits.append(of_stage)
        return dict(mask_preds=logits)


class ExtraAttention(BaseModule):
    """Attention among the cells of the last map; the other maps stay as they are.

    Args:
        in_channels: Channels of each map.
        num_head: Heads.
        drop_path: Rate of both branches.
        with_cp: Recompute activations in the backward pass to save memory.

    Raises:
        ConfigError: The heads do not divide the last map's channels.
    """

    def __init__(self, in_channels: list[int], num_head: int, drop_path: float = 0.0, with_cp: bool = False):
        super().__init__()
        self.in_channels, self.with_cp = list(in_channels), with_cp
        dims = self.in_channels[-1]
        if dims % num_head:
            raise ConfigError(f'mmlape.ExtraAttention: num_head={num_head} does not divide the {dims} channels')
        self.norm1 = nn.LayerNorm(dims)
        self.attn = MultiheadAttention(dims, num_head)
        self.norm2 = nn.LayerNorm(dims)
        self.ffn = FFN(dims, 4 * dims)
        self.final_norm = nn.LayerNorm(dims)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.apply(init_linear)

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the maps, the last one (B, D, H, W) after the layer."""
        *others, last = inputs
        if self.with_cp and last.requires_grad:
            last = checkpoint(self._layer, last, use_reentrant=False)
        else:
            last = self._layer(last)
        return (*others, last)

    def _layer(self, x: Tensor) -> Tensor:
        grid = tuple(x.shape[-2:])
        tokens = x.flatten(2).transpose(1, 2)  # (B, N, D)
        tokens = tokens + self.drop_path(self.attn(self.norm1(tokens), grid))
        tokens = tokens + self.drop_path(self.ffn(self.norm2(tokens)))
        return contiguous(to_maps(self.final_norm(tokens), grid))


@TRANSFORMS.register_module()
class InstaBoost(BaseTransform):
    """MMDetection's transform of this name; without its package, one line says so.

    Args:
        aug_ratio: The share of images that are changed; 0 changes none, and needs no package.
        **kwargs: As MMDetection's.

    Raises:
        ConfigError: The package is not installed.
    """

    def __init__(self, aug_ratio: float = 0.5, **kwargs) -> None:
        if aug_ratio and not importable('instaboostfast'):
            raise ConfigError(  # of what it requires all is in the stack, but for a second OpenCV
                'InstaBoost needs the package instaboostfast: pip install --no-deps instaboostfast; or train without '
                'it: --cfg-options train_dataloader.dataset.pipeline.N.aug_ratio=0, where N is its place'
            )
        options = dict(type='mmdet.InstaBoost', aug_ratio=aug_ratio, **kwargs)
        self.boost = TRANSFORMS.build(options) if aug_ratio else None

    def transform(self, results: dict) -> dict:
        """Move the objects of some images; images and instances change, semantic maps do not."""
        return self.boost(results) if self.boost else results
