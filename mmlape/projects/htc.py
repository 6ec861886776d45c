"""HTC++ (Hybrid Task Cascade, CVPR 2019) as ViT-Adapter uses it: RoI head, attention on the last map, InstaBoost.

With the features r of a box, stage t's mask head h_t and its convolution g_t,

    f_t, m_t = h_t(r + g_t(f_{t-1})),    mask = mean_t sigmoid(m_t)

The released models' figures are those of the mean (mmdetection 2); mmdetection 3 predicts
sigmoid(m_3). The last map goes through a transformer layer:

    x <- x + Attention(LN(x));  x <- x + FFN(LN(x));  x <- LN(x)

The package of InstaBoost (arXiv 1908.07801), which moves the objects of an image a little, is no
part of the stack.
"""

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks import DropPath
from mmcv.transforms import BaseTransform
from mmdet.models.roi_heads import HybridTaskCascadeRoIHead as PlainHead
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.errors import ConfigError
from mmlape.lab.environment.packages import importable
from mmlape.models.grid import contiguous, to_maps
from mmlape.models.layers.attention import MultiheadAttention
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


class _FFN(nn.Module):
    def __init__(self, embed_dims: int, hidden: int):
        super().__init__()
        self.fc1, self.act, self.fc2 = (nn.Linear(embed_dims, hidden), nn.GELU(), nn.Linear(hidden, embed_dims))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class ExtraAttention(BaseModule):
    """Attention among the cells of the last map; the other maps stay as they are.

    Args:
        in_channels: Channels of each map.
        num_head: Heads.
        with_ffn: Whether an FFN follows.
        ffn_ratio: Its width relative to the map's channels.
        drop_path: Rate of both branches.
        init_values: Initial LayerScale; None has none.
        with_cp: Recompute activations in the backward pass to save memory.
        use_final_norm: Whether a norm comes last.

    Raises:
        ConfigError: The heads do not divide the last map's channels.
    """

    def __init__(
        self,
        in_channels: list[int],
        num_head: int,
        with_ffn: bool = True,
        ffn_ratio: float = 4.0,
        drop_path: float = 0.0,
        init_values: float | None = None,
        with_cp: bool = False,
        use_final_norm: bool = True,
    ):
        super().__init__()
        self.in_channels, self.with_cp = list(in_channels), with_cp
        dims = self.in_channels[-1]
        if dims % num_head:
            raise ConfigError(f'mmlape.ExtraAttention: num_head={num_head} does not divide the {dims} channels')
        self.norm1 = nn.LayerNorm(dims)
        self.attn = MultiheadAttention(dims, num_head)
        self.norm2 = nn.LayerNorm(dims) if with_ffn else None
        self.ffn = _FFN(dims, int(dims * ffn_ratio)) if with_ffn else None
        self.final_norm = nn.LayerNorm(dims) if use_final_norm else nn.Identity()
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.gamma_1 = self.gamma_2 = None
        if init_values is not None:
            self.gamma_1 = nn.Parameter(torch.full((dims,), float(init_values)))
            self.gamma_2 = nn.Parameter(torch.full((dims,), float(init_values)))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

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
        tokens = self._add(tokens, self.attn(self.norm1(tokens), grid), self.gamma_1)
        if self.ffn is not None:
            tokens = self._add(tokens, self.ffn(self.norm2(tokens)), self.gamma_2)
        return contiguous(to_maps(self.final_norm(tokens), grid))

    def _add(self, x: Tensor, branch: Tensor, gamma: Tensor | None) -> Tensor:
        return x + self.drop_path(branch if gamma is None else gamma * branch)


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
