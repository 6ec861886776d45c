"""The parts of CeiT (ICCV 2021): image-to-tokens, the locally-enhanced FFN, layer-wise class attention.

tokens = Conv4x4(MaxPool(BN(Conv7x7(x))))
LeFF(patches) = BN(Conv1x1(GELU(BN(DWConv3x3(GELU(BN(Conv1x1(patches))))))))
LCA(z) = y + FFN(LN(y)),  y = z_L + Attention(query z_L, keys and values z_1 ... z_L)
"""

import contextlib
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.models.grid import Grid, channels_last, to_maps
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.patch_embed import PatchEmbed, complete_patches, norms_around
from mmlape.models.layers.transformer_layer import FFN, BaseTransformerLayer
from mmlape.models.named_layers import build_norm
from mmlape.models.position import Joining, Stream

STRIDE = 16


class ConvStem(nn.Module):
    """A convolution, batch norm and max pooling to stride 4.

    There is no activation, as in the public code.
    """

    conv_norm_pairs: ClassVar = (('conv', 'bn'),)

    def __init__(self, in_channels: int, channels: int, bn_cfg: dict):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 7, 2, 3, bias=False)
        self.bn = build_norm(bn_cfg, channels)
        self.maxpool = nn.MaxPool2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W) to maps at stride 4, channels last in memory."""
        return self.maxpool(self.bn(self.conv(channels_last(x))))


class ImageToTokens(PatchEmbed):
    """Image to tokens at stride 16: patches of 4x4 cells of the map of a stem with ``channels``.

    Padded as there.
    """

    def __init__(self, in_channels: int, channels: int, embed_dims: int, patch_norm: str, eps: float, bn_cfg: dict):
        norms_around(patch_norm)
        super().__init__(channels, embed_dims, 4, patch_norm, eps)
        self.backbone = ConvStem(in_channels, channels, bn_cfg)

    def forward(self, x: Tensor) -> tuple[Tensor, Grid]:
        """Map images (B, C, H, W) to tokens (B, N, D) and their grid.

        Raises:
            ValueError: If a side is smaller than 16 pixels.
        """
        return super().forward(self.backbone(complete_patches(x, STRIDE)))


class LocallyEnhancedFFN(nn.Module):
    """An FFN with a depthwise convolution over the patches.

    Tokens before them leave it as they came.
    """

    conv_norm_pairs: ClassVar = (('conv1', 'bn1'), ('conv2', 'bn2'), ('conv3', 'bn3'))

    def __init__(self, embed_dims: int, feedforward_channels: int, bn_cfg: dict):
        super().__init__()
        hidden = feedforward_channels
        self.conv1 = nn.Conv2d(embed_dims, hidden, 1)
        self.bn1 = build_norm(bn_cfg, hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden)
        self.bn2 = build_norm(bn_cfg, hidden)
        self.conv3 = nn.Conv2d(hidden, embed_dims, 1)
        self.bn3 = build_norm(bn_cfg, embed_dims)
        self.act = nn.GELU()

    def forward(self, x: Tensor, hw: Grid) -> Tensor:
        """Map tokens (B, P + N, D) with N patches of grid ``hw``."""
        # the class token has no neighbours to convolve with
        prefix, patches = x.split([x.shape[1] - hw[0] * hw[1], hw[0] * hw[1]], dim=1)
        maps = channels_last(to_maps(patches, hw))
        maps = self.act(self.bn1(self.conv1(maps)))
        maps = self.act(self.bn2(self.conv2(maps)))
        maps = self.bn3(self.conv3(maps))
        return torch.cat((prefix, maps.flatten(2).transpose(1, 2)), dim=1)


class LeFFLayer(BaseTransformerLayer):
    """A transformer layer with ``LocallyEnhancedFFN``.

    Other arguments are those of ``BaseTransformerLayer``.

        x <- x + Attention(join(x, pe));  x <- x + LeFF(LN(x))

    A class token's second branch is the norm itself: it ends as z + LN(z), as in the public code.
    """

    def __init__(
        self, embed_dims: int, attn: nn.Module, joining: Joining, feedforward_channels: int, bn_cfg: dict, **kwargs
    ):
        super().__init__(embed_dims, attn, joining, **kwargs)
        self.norm2 = build_norm(self.norm_cfg, embed_dims)
        self.leff = LocallyEnhancedFFN(embed_dims, feedforward_channels, bn_cfg)

    def run(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer, keeping all activations."""
        x, attn_input, pe = self.join(x, pe)
        x = x + self.drop_path(self.attn(attn_input, hw))
        return x + self.drop_path(self.leff(self.norm2(x), hw)), pe

    def checkpoint_options(self) -> dict:
        """Leave batch statistics as they are when activations are recomputed.

        Compilers do that themselves.
        """
        if torch.compiler.is_compiling():
            return {}
        return dict(context_fn=lambda: (contextlib.nullcontext(), _kept_statistics(self)))


@contextlib.contextmanager
def _kept_statistics(module: nn.Module) -> Iterator[None]:
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = []
    for norm in norms:
        count = norm.num_batches_tracked
        before.append((norm.momentum, None if count is None else count.clone()))
    for norm in norms:
        # statistics as they are, but still saved for the backward as in the first pass
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before):
            norm.momentum = momentum
            if count is not None:
                norm.num_batches_tracked.copy_(count)


class LastTokenAttention(MultiheadAttention):
    """Attention of the last token over all."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, L, D) to (B, 1, D)."""
        # (B, heads, L, d) each
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        out = self._attend(q[:, :, -1:], k, v, (1, 1), x)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


class LayerClassAttention(nn.Module):
    """Layer-wise class attention: the last layer's class token attends to those of all layers."""

    def __init__(self, embed_dims: int, num_heads: int, feedforward_channels: int, drop_rate: float, norm_cfg: dict):
        super().__init__()
        self.norm1 = build_norm(norm_cfg, embed_dims)
        self.attn = LastTokenAttention(embed_dims, num_heads, proj_drop_rate=drop_rate)
        self.norm2 = build_norm(norm_cfg, embed_dims)
        self.feedforward = FFN(embed_dims, feedforward_channels, drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        """Map the class tokens of all layers (B, L, D) to (B, D)."""
        x = (x[:, -1:] + self.attn(self.norm1(x)))[:, 0]
        return x + self.feedforward(self.norm2(x))
