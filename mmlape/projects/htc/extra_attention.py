"""One transformer layer on the last map, as in the public HTC++ models of ViT-Adapter.

x <- x + Attention(LN(x));  x <- x + FFN(LN(x));  x <- LN(x)
"""

import torch
from mmcv.cnn.bricks import DropPath
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.errors import ConfigError
from mmlape.models.grid import contiguous, to_maps
from mmlape.models.layers.attention import MultiheadAttention


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
