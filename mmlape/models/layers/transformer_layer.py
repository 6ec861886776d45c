"""One pre-norm transformer layer: attention (global, windowed or with a relative bias) and the feed-forward network.

    x <- x + gamma1 * Attention(join(x, pe));  x <- x + gamma2 * FFN(LN(x))

Parameter names are those of DeiT and timm; ``gamma1`` and ``gamma2`` are ViT-Adapter's LayerScale.
"""

import torch
import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.models.position.joining import Joining, Stream, build_pe_norm
from mmlape.models.position.kinds import Grid, RelativePositionBias, parts


class MultiheadAttention(nn.Module):
    """Self-attention with a fused qkv, over all tokens or inside windows of the grid.

    A windowed grid is padded on the right and the bottom with zeros after the qkv projection, and the padding is not
    masked, which is how the public ViT-Adapter checkpoints were trained.

    Args:
        window_size: side of a window in tokens, or None for global attention.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: bool = True,
        attn_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        window_size: int | None = None,
    ):
        super().__init__()
        self.num_heads = num_heads
        self.window_size = window_size
        self.attn_drop_rate = attn_drop_rate
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop_rate)

    def forward(self, x: Tensor, hw: Grid) -> Tensor:
        """Attend; (B, N, D) to (B, N, D), ``hw`` being the grid of the patch tokens."""
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # (B, N, 3, heads, d)
        out = self._global(qkv, hw) if self.window_size is None else self._windowed(qkv, hw)
        return self.proj_drop(self.proj(out))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        dropout = self.attn_drop_rate if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)

    def _global(self, qkv: Tensor, hw: Grid) -> Tensor:
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, heads, N, d) each
        return self._attend(q, k, v).transpose(1, 2).flatten(2)

    def _windowed(self, qkv: Tensor, hw: Grid) -> Tensor:
        (height, width), s = hw, self.window_size
        batch, heads, d = qkv.shape[0], *qkv.shape[3:]
        qkv = qkv.reshape(batch, height, width, -1)
        rows, columns = parts(height, s), parts(width, s)
        qkv = F.pad(qkv, (0, 0, 0, columns * s - width, 0, rows * s - height))
        qkv = qkv.view(batch, rows, s, columns, s, 3, heads, d).permute(5, 0, 1, 3, 6, 2, 4, 7)
        q, k, v = qkv.reshape(3, batch * rows * columns, heads, s * s, d)
        out = self._attend(q, k, v).view(batch, rows, columns, heads, s, s, d)
        out = out.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, rows * s, columns * s, heads * d)
        return out[:, :height, :width].reshape(batch, height * width, heads * d)


class RelativeAttention(RelativePositionBias, MultiheadAttention):
    """Global attention whose logits get a relative position bias.

    Args:
        grid: the grid of patches that the bias table is made for.
        num_prefix: tokens before the patches, which get no bias.
        normed: whether the bias goes through a LayerNorm over the key axis.
    """

    def __init__(self, *args, grid: Grid, num_prefix: int, normed: bool, mode: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.init_bias(grid, self.num_heads, num_prefix, normed, mode)

    def _global(self, qkv: Tensor, hw: Grid) -> Tensor:
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        bias = self.position_bias(hw).to(q.dtype)
        return self._attend(q, k, v, bias).transpose(1, 2).flatten(2)


def add_branch(x: Tensor, out: Tensor, gamma: Tensor | None) -> Tensor:
    """``x + gamma * out`` in one pass, or ``x + out`` without LayerScale."""
    return x + out if gamma is None else torch.addcmul(x, gamma, out)


class FFN(nn.Module):
    """Two linear maps with an exact GELU between them."""

    def __init__(self, embed_dims: int, feedforward_channels: int, drop_rate: float = 0.0):
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, feedforward_channels)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(feedforward_channels, embed_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class TransformerEncoderLayer(nn.Module):
    """One layer; its joining decides what attention sees of the PE.

    Args:
        attn: the attention module.
        joining: the joining method; it says whether the layer keeps a ``pe_norm``.
        layer_scale_init_value: initial LayerScale gammas; 0 means no LayerScale.
        with_cp: recompute activations in the backward pass to save memory.
    """

    def __init__(
        self,
        embed_dims: int,
        attn: nn.Module,
        joining: Joining,
        feedforward_channels: int,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        layer_scale_init_value: float = 0.0,
        pe_norm: str | None = None,
        norm_cfg: dict | None = None,
        with_cp: bool = False,
    ):
        super().__init__()
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        self.joining = joining
        self.with_cp = with_cp
        self.norm1 = build_norm_layer(norm_cfg, embed_dims)[1]
        self.pe_norm = build_pe_norm(pe_norm, embed_dims, norm_cfg) if pe_norm else None
        self.attn = attn
        self.norm2 = build_norm_layer(norm_cfg, embed_dims)[1]
        self.mlp = FFN(embed_dims, feedforward_channels, drop_rate)
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate else nn.Identity()
        scale = layer_scale_init_value
        self.gamma1 = nn.Parameter(torch.full((embed_dims,), float(scale))) if scale else None
        self.gamma2 = nn.Parameter(torch.full((embed_dims,), float(scale))) if scale else None

    def forward(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer.

        Args:
            x: tokens (B, N, D).
            pe: the PE as the previous layer passed it on.
            hw: grid of the patch tokens.

        Returns:
            Tokens (B, N, D), and the PE for the next layer.
        """
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(self._forward, x, pe, hw, use_reentrant=False)
        return self._forward(x, pe, hw)

    def _forward(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        x, attn_input, pe = self.joining.join(x, pe, self.norm1, self.pe_norm)
        x = add_branch(x, self.drop_path(self.attn(attn_input, hw)), self.gamma1)
        x = add_branch(x, self.drop_path(self.mlp(self.norm2(x))), self.gamma2)
        return x, pe
