"""The layer of ViT-Lite, CVT and CCT (arXiv 2104.05704), under the public code's names.

    x <- x + Attention(join(x, pe));  x <- norm1(x);  x <- x + MLP(x)

The residual stream itself is normed before the MLP, so a PE added at the input is normed again in every layer.
"""

import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from mmcv.cnn.bricks import DropPath
from torch import Tensor, nn

from mmlape.models.grid import Grid
from mmlape.models.layers.linear import Linear
from mmlape.models.layers.transformer_layer import BaseTransformerLayer
from mmlape.models.position import Joining, Stream


class CompactLayer(BaseTransformerLayer):
    """The layer of Compact Transformers.

    Args:
        embed_dims: Width D of the tokens.
        attn: The attention module.
        joining: The joining method; the PE joins at ``pre_norm`` only.
        feedforward_channels: Hidden width of the MLP.
        drop_path_rate: Stochastic depth of both branches.
        pe_norm: A key of ``PE_NORMS`` where the layer norms the PE.
        norm_cfg: Of the layer's norms.
        with_cp: Recompute activations in the backward pass to save memory.
    """

    norm_name = 'pre_norm'
    attn_name = 'self_attn'

    def __init__(
        self,
        embed_dims: int,
        attn: nn.Module,
        joining: Joining,
        feedforward_channels: int,
        drop_path_rate: float = 0.0,
        pe_norm: str | None = None,
        norm_cfg: dict | None = None,
        with_cp: bool = False,
    ):
        super().__init__(embed_dims, attn, joining, pe_norm, norm_cfg, with_cp)
        self.norm1 = build_norm_layer(self.norm_cfg, embed_dims)[1]
        self.linear1 = Linear(embed_dims, feedforward_channels)
        self.linear2 = Linear(feedforward_channels, embed_dims)
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate else nn.Identity()

    def run(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer, keeping all activations."""
        x, attn_input, pe = self.join(x, pe)
        x = self.norm1(x + self.drop_path(self.self_attn(attn_input, hw)))
        return x + self.drop_path(self.linear2(F.gelu(self.linear1(x)))), pe
