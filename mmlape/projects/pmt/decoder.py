"""The Plain Mask Decoder of PMT (2603.25398): queries and the patch tokens of a frozen ViT in plain layers.

With f_l the normed tokens of a layer l of the ViT, class token and registers included, queries q and
the grid of patches,

    x = [q, sum_l scale_l (n_l + MLP_l(n_l))],   n_l = BN_l(f_l)
    x <- x + gamma attn(LN(x));   x <- x + gamma' MLP(LN(x))          in each layer
    masks = head(LN(x)_q) . up(LN(x)_patches),   classes = linear(LN(x)_q)

Patch tokens have DINOv3's rotary angles. While ``mask_probs`` of a layer is 1, each query attends,
of the patches, to those only where its mask is positive; in training the share of such queries falls
to 0, so that inference has no masks (as in EoMT, CVPR 2025).
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.convnext import LayerNorm2d

from mmlape.models.grid import Grid, contiguous
from mmlape.models.position.rotary import AxialRotary, rotation, turn

PAIRS = 'half'


class Attention(nn.Module):
    """Attention of all tokens, in which the last ones, the patches, are turned; keys have no bias."""

    def __init__(self, dims: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.v_proj, self.o_proj = (nn.Linear(dims, dims) for _ in range(3))
        self.k_proj = nn.Linear(dims, dims, bias=False)

    def forward(self, x: Tensor, by: Tensor, mask: Tensor | None) -> Tensor:
        """Map tokens (B, N, D); ``mask`` (B, 1, N, N) is true where a token attends to another."""
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )  # (B, heads, N, d)
        q, k = turn(q, by, PAIRS), turn(k, by, PAIRS)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer with norms before attention and MLP, and LayerScale."""

    def __init__(self, dims: int, num_heads: int, hidden: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dims), nn.LayerNorm(dims)
        self.attention = Attention(dims, num_heads)
        self.mlp = nn.Sequential(nn.Linear(dims, hidden), nn.GELU(), nn.Linear(hidden, dims))
        self.gamma1, self.gamma2 = nn.Parameter(torch.ones(dims)), nn.Parameter(torch.ones(dims))

    def forward(self, x: Tensor, by: Tensor, mask: Tensor | None) -> Tensor:
        """Map tokens (B, N, D)."""
        x = x + self.gamma1 * self.attention(self.norm1(x), by, mask)
        return x + self.gamma2 * self.mlp(self.norm2(x))


def upscale(dims: int) -> nn.Sequential:
    """Return layers that double the sides of a map."""
    return nn.Sequential(
        nn.ConvTranspose2d(dims, dims, 2, stride=2),
        nn.GELU(),
        nn.Conv2d(dims, dims, 3, padding=1, groups=dims, bias=False),
        LayerNorm2d(dims, eps=1e-6),
    )


class PlainMaskDecoder(nn.Module):
    """Queries and patch tokens in plain layers; names of parameters are ours.

    Args:
        embed_dims: Of the ViT.
        num_heads: Of the decoder's attention.
        num_levels: How many of the ViT's layers are read.
        num_classes: Without that of no object.
        num_queries: Number of masks.
        num_layers: Of the decoder.
        feedforward_channels: Of its MLPs; by default four times ``embed_dims``.
        patch_size: Masks have stride 4 for patches of 16 pixels.
        norm: Makes the norm of a level from its channels; of (B, C, N, 1).
    """

    mask_probs: Tensor

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        num_levels: int,
        num_classes: int,
        num_queries: int = 100,
        num_layers: int = 6,
        feedforward_channels: int | None = None,
        patch_size: int = 16,
        norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
    ):
        super().__init__()
        dims = embed_dims
        self.head_dims = dims // num_heads
        self.rope = AxialRotary(coordinates='normalised', pairs=PAIRS)
        self.level_norms = nn.ModuleList(norm(dims) for _ in range(num_levels))
        self.laterals = nn.ModuleList(
            nn.Sequential(nn.Linear(dims, dims // 2), nn.GELU(), nn.Linear(dims // 2, dims)) for _ in range(num_levels)
        )
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(dims)) for _ in range(num_levels))
        self.queries = nn.Embedding(num_queries, dims)
        hidden = feedforward_channels or 4 * dims
        self.layers = nn.ModuleList(Layer(dims, num_heads, hidden) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dims)
        doublings = max(1, int(math.log2(patch_size)) - 2)
        self.upscale = nn.Sequential(*(upscale(dims) for _ in range(doublings)))
        self.mask_head = nn.Sequential(
            nn.Linear(dims, dims), nn.GELU(), nn.Linear(dims, dims), nn.GELU(), nn.Linear(dims, dims)
        )
        self.class_head = nn.Linear(dims, num_classes + 1)
        self.register_buffer('mask_probs', torch.ones(num_layers))
        self.shares = [1.0] * num_layers

    def set_shares(self, shares: Sequence[float]) -> None:
        """Set ``mask_probs``, and the same numbers in Python, which a graph takes as constants."""
        self.mask_probs.copy_(torch.tensor(shares))
        self.shares = list(shares)

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.shares = self.mask_probs.tolist()

    def forward(self, levels: Sequence[Tensor], grid: Grid) -> tuple[list[Tensor], list[Tensor]]:
        """Return the logits of classes (B, Q, K + 1) and masks (B, Q, H, W), before each layer and at the end.

        Args:
            levels: Tokens (B, P + N, D) of each level, P class tokens and registers first.
            grid: Rows and columns of the N patches.
        """
        x = self.fused(levels)
        x = torch.cat((self.queries.weight.expand(len(x), -1, -1), x), dim=1)
        by = self.rotation(grid, x)
        classes, masks = [], []
        for layer, share in zip(self.layers, self.shares):
            mask = None
            # in evaluation masks are not drawn: all queries have them, or none
            if self.training or share > 0.5:
                for values, found in zip((classes, masks), self.predicted(x, grid)):
                    values.append(found)
                mask = self.attended(masks[-1], grid, x.shape[1], share if self.training else 1.0)
            x = layer(x, by, mask)
        for values, found in zip((classes, masks), self.predicted(x, grid)):
            values.append(found)
        return classes, masks

    def fused(self, levels: Sequence[Tensor]) -> Tensor:
        """Return the sum of the levels, (B, P + N, D)."""
        parts = []
        for tokens, norm, lateral, scale in zip(levels, self.level_norms, self.laterals, self.scales, strict=True):
            normed = norm(contiguous(tokens.mT[..., None]))[..., 0].mT
            parts.append((normed + lateral(normed)) * scale)
        return torch.stack(parts).sum(0)

    def rotation(self, grid: Grid, x: Tensor) -> Tensor:
        """Return by what the tokens x (B, Q + P + N, D) are turned."""
        angles = self.rope.coordinates.angles(self.head_dims, grid, x.device)
        angles = F.pad(angles, (0, 0, x.shape[1] - math.prod(grid), 0))
        return rotation(angles, PAIRS, torch.promote_types(x.dtype, torch.float32))

    def predicted(self, x: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return the logits of classes and masks of the tokens x."""
        x = self.norm(x)
        queries, patches = x[:, : len(self.queries.weight)], x[:, x.shape[1] - math.prod(grid) :]
        maps = self.upscale(patches.mT.unflatten(-1, grid))
        masks = torch.einsum('bqc,bchw->bqhw', self.mask_head(queries), maps)
        return self.class_head(queries), masks

    def attended(self, masks: Tensor, grid: Grid, tokens: int, share: float) -> Tensor:
        """Return which tokens attend to which, (B, 1, tokens, tokens); ``share`` of the queries are masked."""
        batch, queries = masks.shape[:2]
        inside = F.interpolate(masks, grid, mode='bilinear').flatten(2) > 0
        if share < 1:
            inside |= torch.rand(batch, queries, 1, device=masks.device) > share
        to_patches = F.pad(inside, (0, 0, 0, tokens - queries), value=True)
        return F.pad(to_patches, (tokens - inside.shape[2], 0), value=True)[:, None]
