"""Self-attention over all tokens or inside windows of the grid, with slots for position encodings.

Attention(x) = softmax(q k^T / sqrt(d) + terms) v
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.models.grid import Grid, assemble, ceil_div, heads_together, partition
from mmlape.models.position import AttentionInput, AttentionPosition, AttentionSlot, attaching

QKV_BIASES = (True, False, 'qv')
WINDOW_PADDINGS = ('after-qkv', 'before-qkv')


class MultiheadAttention(nn.Module):
    """Self-attention with a fused qkv.

    A windowed grid is padded on the right and the bottom, and the padding is not masked, which is
    how the public ViT-Adapter checkpoints were trained.

    Args:
        embed_dims: Width D of the tokens.
        num_heads: Heads, each of width d = D / heads.
        qkv_bias: Whether the qkv projection has a bias; 'qv' gives queries and values one,
            ``q_bias`` and ``v_bias``.
        attn_drop_rate: Dropout of the attention weights.
        proj_drop_rate: Dropout of the output.
        window_size: Side of a window in tokens, or None for global attention.
        window_padding: With which zeros a grid is filled to complete windows: queries, keys and
            values, 'after-qkv' (ViT), or tokens, 'before-qkv' (BEiT and Uni-Perceiver), whose
            queries, keys and values are the biases.
        encodings: Position encodings inside this attention.
        slot: What they are attached to; it may be None only without encodings.

    Attributes:
        head_scale: Scales the heads' outputs, side by side (B, N, D). It is the identity unless a
            layer sets another.
        norm: Norms what the output projection reads. It is the identity unless a layer sets
            another.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: bool | str = True,
        attn_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        window_size: int | None = None,
        window_padding: str = 'after-qkv',
        encodings: Sequence[AttentionPosition] = (),
        slot: AttentionSlot | None = None,
    ):
        super().__init__()
        if qkv_bias not in QKV_BIASES:
            raise ConfigError(f"unknown qkv_bias={qkv_bias!r}; choose one of: True, False, 'qv'")
        require_choice('window_padding', window_padding, WINDOW_PADDINGS)
        self.num_heads, self.head_dims = num_heads, embed_dims // num_heads
        self.window_size, self.pads_tokens = window_size, window_padding == 'before-qkv'
        self.attn_drop_rate = attn_drop_rate
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=bool(qkv_bias) and qkv_bias != 'qv')
        for name in ('q_bias', 'v_bias'):
            self.register_parameter(name, nn.Parameter(torch.zeros(embed_dims)) if qkv_bias == 'qv' else None)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop_rate)
        self.head_scale: nn.Module = nn.Identity()
        self.norm: nn.Module = nn.Identity()
        self.encodings = tuple(encodings)
        for encoding in self.encodings:
            with attaching(self, encoding):
                encoding.attach(self, slot)

    def attended_grid(self, grid: Grid) -> Grid:
        """Return the grid of the tokens that attend to one another on a map of ``grid``."""
        return (self.window_size, self.window_size) if self.window_size else grid

    def forward(self, x: Tensor | AttentionInput, hw: Grid) -> Tensor:
        """Map tokens (B, N, D), or what q, k and v are projected from, to (B, N, D).

        ``hw`` is the patches' grid.
        """
        qkv = self._project(x).unflatten(-1, (3, self.num_heads, -1))  # (B, N, 3, heads, d)
        tokens = x if isinstance(x, Tensor) else x[0]
        attend = self._global if self.window_size is None else self._windowed
        out = attend(qkv, hw, tokens)
        return self.proj_drop(self.proj(self.norm(self.head_scale(out))))

    def _project(self, x: Tensor | AttentionInput) -> Tensor:
        if isinstance(x, Tensor):
            qkv = self.qkv(x)
        else:
            qkv = torch.cat([self.qkv(part).chunk(3, dim=-1)[i] for i, part in enumerate(x)], dim=-1)
        if self.q_bias is None:
            return qkv
        bias = torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        return qkv + bias.to(qkv.dtype)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, hw: Grid, tokens: Tensor, apart: Tensor | None = None
    ) -> Tensor:
        """Attend with (B, heads, N, d) each, of which q is projected from ``tokens`` (B, N, D).

        ``apart`` says which keys a query must not see, (W, N, N) bool; B then counts each image's W
        windows in turn.
        """
        terms = [
            encoding.logits(self, q, k, hw, *((tokens,) if encoding.reads_tokens else ()))
            for encoding in self.encodings
        ]
        terms = [term for term in terms if term is not None]
        bias = sum(terms[1:], terms[0]) if terms else None
        if apart is not None:
            images = q.shape[0] // apart.shape[0]
            apart = apart[:, None]  # (W, 1, N, N)
            if bias is None:
                bias = q.new_zeros(1, 1, 1, 1)
            if bias.shape[0] == 1:
                bias = bias.masked_fill(apart, -torch.inf).repeat(images, 1, 1, 1)
            else:
                bias = bias.masked_fill(apart.repeat(images, 1, 1, 1), -torch.inf)
        for encoding in self.encodings:
            q, k = encoding.rotate(self, q, k, hw)
        dropout = self.attn_drop_rate if self.training else 0.0
        if not any(encoding.reads_weights for encoding in self.encodings):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
        logits = q @ k.mT * self.head_dims**-0.5
        weights = F.dropout((logits if bias is None else logits + bias).softmax(-1), dropout)
        out = weights @ v
        for encoding in self.encodings:
            term = encoding.values(self, weights, hw)
            out = out if term is None else out + term
        return out

    def _global(self, qkv: Tensor, hw: Grid, tokens: Tensor) -> Tensor:
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, heads, N, d) each
        return heads_together(self._attend(q, k, v, hw, tokens))

    def _windowed(self, qkv: Tensor, hw: Grid, tokens: Tensor) -> Tensor:
        (height, width), s = hw, self.window_size
        grid = (ceil_div(height, s) * s, ceil_div(width, s) * s)
        border = (0, 0, 0, grid[1] - width, 0, grid[0] - height)
        qkv = F.pad(qkv.flatten(2).unflatten(1, hw), border)  # (B, H, W, 3 D)
        if self.pads_tokens:
            of_image = F.pad(qkv.new_ones(height, width, 1), border)
            nothing = qkv.new_zeros(1, 1, qkv.shape[-1] // 3)
            qkv = torch.where(of_image > 0, qkv, self._project(nothing))
        windows = partition(qkv, s).unflatten(-1, (3, self.num_heads, -1))
        if any(encoding.reads_tokens for encoding in self.encodings):
            tokens = partition(F.pad(tokens.unflatten(1, hw), border), s)
        out = assemble(self._global(windows, (s, s), tokens), grid, s)
        return out[:, :height, :width].flatten(1, 2)
