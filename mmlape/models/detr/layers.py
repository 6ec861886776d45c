"""DETR's encoder with position encodings inside its self-attention, under mmdetection's names of parameters.

With tokens x of the padded feature map and w_l the PE that layer l joins,

    x <- norm(x + Attention(q = k = x + w_l, v = x));  x <- norm(x + FFN(x))

In DETR (ECCV 2020) w_l = w, sinusoids, in every layer. LaPE's chain w_l = LN_l(w_{l-1}) is no paper's, it is ours.
Terms inside attention (iRPE, ICCV 2021, section 4.4) see the grid of the padded map; padded keys are masked after it.
"""

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks.transformer import MultiheadAttention as NamedAttention
from mmdet.models.layers import DetrTransformerEncoderLayer
from mmengine.model import BaseModule, ModuleList
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.models.grid import Grid
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.transformer_layer import full_precision
from mmlape.models.position import AttentionPosition, AttentionSlot, Position, attaching, build_pe_norm


class EncoderAttention(NamedAttention):
    """mmcv's attention module, of which the parameters and the dropout are used, with encodings inside.

    Args:
        embed_dims: Width D of the tokens.
        num_heads: Heads, each of width d = D / heads.
        encodings: Position encodings inside this attention.
        slot: Where they are attached.
        **kwargs: Of mmcv's module.
    """

    _attend = MultiheadAttention._attend

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        encodings: tuple[AttentionPosition, ...],
        slot: AttentionSlot,
        **kwargs,
    ):
        super().__init__(embed_dims, num_heads, **kwargs)
        self.head_dims, self.attn_drop_rate = embed_dims // num_heads, self.attn.dropout
        self.encodings = encodings
        for encoding in encodings:
            with attaching(self, encoding):
                encoding.attach(self, slot)

    def forward(self, x: Tensor, seen: Tensor, padding: Tensor | None, hw: Grid) -> Tensor:
        """Attend, and add the tokens x (B, N, D), of which the values are projected; see ``Encoder.forward``.

        Queries and keys are projected from ``seen``.
        """
        dims = 2 * self.embed_dims
        weight, bias = self.attn.in_proj_weight, self.attn.in_proj_bias
        parts = *F.linear(seen, weight[:dims], bias[:dims]).chunk(2, dim=-1), F.linear(x, weight[dims:], bias[dims:])
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)  # (B, heads, N, d)
        out = self._attend(q, k, v, hw, None if padding is None else padding[:, None])
        out = self.attn.out_proj(out.transpose(1, 2).flatten(2))
        return x + self.dropout_layer(self.proj_drop(out))

    def tables(self) -> list[nn.Parameter]:
        """Return the parameters of the encodings."""
        return [value for name, value in self.named_parameters() if not name.startswith('attn.')]


class EncoderLayer(DetrTransformerEncoderLayer):
    """mmdetection's layer with another attention.

    Args:
        position: The position encodings of the model.
        slot: Where those inside attention are attached.
        **kwargs: Of mmdetection's layer.
    """

    attn_name = 'self_attn'

    def __init__(self, position: Position, slot: AttentionSlot, **kwargs):
        super().__init__(**kwargs)
        self.self_attn = EncoderAttention(encodings=position.build_inside(), slot=slot, **self.self_attn_cfg)
        self.joining = position.joining
        norm_cfg = {'eps': 1e-5, **self.norm_cfg}
        self.pe_norm = build_pe_norm(position.pe_norm, self.embed_dims, norm_cfg) if position.pe_norm else None

    @property
    def attention(self) -> nn.Module:
        """The attention module."""
        return self.self_attn

    def forward(self, x: Tensor, pe: Tensor | None, padding: Tensor | None, hw: Grid) -> tuple[Tensor, Tensor | None]:
        """Return the tokens (B, N, D), and the PE for the next layer; the arguments are those of ``Encoder``."""
        _, seen, following = self.joining.join(x, pe, nn.Identity(), self.pe_norm)
        if self.joining.at_input and pe is not None:
            seen = x + pe  # what others add at the input once, DETR adds in every layer
        x = self.norms[0](self.self_attn(x, seen, padding, hw))
        return self.norms[1](self.ffn(x)), following


class Encoder(BaseModule):
    """The encoder.

    Args:
        num_layers: How many layers.
        layer_cfg: Of mmdetection's layer.
        position: The position encodings of the model.
        grid: Grid that tables of one grid are made for.
        with_cp: Recompute activations in the backward pass to save memory.
    """

    def __init__(self, num_layers: int, layer_cfg: dict, position: Position, grid: Grid, with_cp: bool = False):
        super().__init__()
        slots = [AttentionSlot(layer, grid, normed=position.normed) for layer in range(num_layers)]
        self.layers = ModuleList(EncoderLayer(position, slot, **layer_cfg) for slot in slots)
        self.embed_dims, self.with_cp = self.layers[0].embed_dims, with_cp

    def forward(self, x: Tensor, pe: Tensor | None, padding: Tensor | None, hw: Grid) -> Tensor:
        """Encode a map.

        Args:
            x: Tokens (B, N, D).
            pe: Absolute PE (B, N, D); None without one.
            padding: Which tokens are no part of the image, (B, N); None if all are.
            hw: Grid of the tokens.
        """
        x = full_precision(x)
        for layer in self.layers:
            if self.with_cp and torch.is_grad_enabled():
                x, pe = checkpoint(layer, x, pe, padding, hw, use_reentrant=False)
            else:
                x, pe = layer(x, pe, padding, hw)
        return x
