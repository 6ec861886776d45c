"""DETR (ECCV 2020) with any position encodings in its encoder's self-attention.

The rest is mmdetection's. `type='mmlape.DETR'`; parameters have mmdetection's names, tables those
of the public iRPE code.
"""

import copy
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks.transformer import MultiheadAttention as NamedAttention
from mmdet.models.detectors import DETR as PlainDETR
from mmdet.models.layers import DetrTransformerDecoder, DetrTransformerEncoderLayer, SinePositionalEncoding
from mmengine.model import BaseModule, ModuleList
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.checkpoint.loading import LoadReport, load_pretrained
from mmlape.errors import ConfigError
from mmlape.models.base.backbone import resize_on_load
from mmlape.models.grid import Grid
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.transformer_layer import full_precision
from mmlape.models.position import (
    AttentionPosition,
    AttentionSlot,
    NormPlaces,
    Position,
    PositionType,
    attaching,
    build_pe_norm,
    resolve_position,
)
from mmlape.projects.detr.checkpoint import DETRCheckpointAdapter, fitting_joinings


class EncoderAttention(NamedAttention):
    """mmcv's attention module, of which the parameters and the dropout are used, with encodings inside."""

    _attend = MultiheadAttention._attend

    def __init__(
        self, embed_dims: int, num_heads: int, encodings: tuple[AttentionPosition, ...], slot: AttentionSlot, **kwargs
    ):
        super().__init__(embed_dims, num_heads, **kwargs)
        self.head_dims, self.attn_drop_rate = embed_dims // num_heads, self.attn.dropout
        self.encodings = encodings
        for encoding in encodings:
            with attaching(self, encoding):
                encoding.attach(self, slot)

    def forward(self, x: Tensor, seen: Tensor, padding: Tensor | None, hw: Grid) -> Tensor:
        """Attend, and add the tokens x (B, N, D), of which the values are projected.

        See ``Encoder.forward``. Queries and keys are projected from ``seen``.
        """
        dims = 2 * self.embed_dims
        weight, bias = self.attn.in_proj_weight, self.attn.in_proj_bias
        parts = (*F.linear(seen, weight[:dims], bias[:dims]).chunk(2, dim=-1), F.linear(x, weight[dims:], bias[dims:]))
        # (B, heads, N, d)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        out = self._attend(q, k, v, hw, seen, None if padding is None else padding[:, None])
        out = self.attn.out_proj(out.transpose(1, 2).flatten(2))
        return x + self.dropout_layer(self.proj_drop(out))

    def tables(self) -> list[nn.Parameter]:
        """Return the parameters of the encodings."""
        return [value for name, value in self.named_parameters() if not name.startswith('attn.')]


class EncoderLayer(DetrTransformerEncoderLayer):
    """mmdetection's layer with another attention; encodings inside it are attached to ``slot``."""

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
        """Return the tokens (B, N, D), and the PE for the next layer.

        The arguments are those of ``Encoder``.
        """
        _, seen, following = self.joining.join(x, pe, nn.Identity(), self.pe_norm)
        if self.joining.at_input and pe is not None:
            seen = x + pe  # what others add at the input once, DETR adds in every layer
        x = self.norms[0](self.self_attn(x, seen, padding, hw))
        return self.norms[1](self.ffn(x)), following


class Encoder(BaseModule):
    """The encoder, in whose self-attention the PE joins.

    Encodings of one grid are made for ``grid``. With tokens x of the padded feature map and w_l the
    PE that layer l joins,

        x <- norm(x + Attention(q = k = x + w_l, v = x));  x <- norm(x + FFN(x))

    In DETR (ECCV 2020) w_l = w, sinusoids, in every layer. LaPE's chain w_l = LN_l(w_{l-1}) is no
    paper's, it is ours. Terms inside attention (iRPE, ICCV 2021, section 4.4) see the grid of the
    padded map; padded keys are masked after it.
    """

    def __init__(self, num_layers: int, layer_cfg: dict, position: Position, grid: Grid, with_cp: bool = False):
        super().__init__()
        slots = [
            AttentionSlot(layer, grid, normed=position.normed, num_layers=num_layers) for layer in range(num_layers)
        ]
        self.layers = ModuleList(EncoderLayer(position, slot, **layer_cfg) for slot in slots)
        self.embed_dims, self.with_cp = self.layers[0].embed_dims, with_cp

    def forward(self, x: Tensor, pe: Tensor | None, padding: Tensor | None, hw: Grid) -> Tensor:
        """Encode the tokens (B, N, D) of a map ``hw`` with an absolute PE (B, N, D), or None.

        ``padding`` says which tokens are no part of the image, (B, N); None if all are.
        """
        x = full_precision(x, self)
        for layer in self.layers:
            if self.with_cp and torch.is_grad_enabled():
                x, pe = checkpoint(layer, x, pe, padding, hw, use_reentrant=False)
            else:
                x, pe = layer(x, pe, padding, hw)
        return x


class DETR(PlainDETR):
    """mmdetection's detector with an encoder of ours.

    The sinusoids know the padding of each image. The decoder's keys get them as they are, whatever
    the joining, and nothing with a ``pe_type`` without 'sine'.

    Args:
        encoder: ``num_layers`` and ``layer_cfg`` of mmdetection's, and ``with_cp``.
        pe_type: 'sine', 'none', a kind inside attention, or a list of 'sine' and such kinds.
        pe_joining: 'default' adds the PE to queries and keys in every layer, as DETR does; 'lape'
            and 'lape-shared' norm it before, which is our extension.
        pe_norm: Which norm, a key of ``PE_NORMS``.
        grid: Feature map that tables of one grid are made for; by default that of an 800 x 1333
            image.
        **kwargs: Of mmdetection's DETR.

    Raises:
        ConfigError: For another absolute kind or joining, a kind between layers, or what
            ``resolve_position`` refuses.
    """

    checkpoint_adapter = DETRCheckpointAdapter()
    load_report: LoadReport | None = None
    # what an adapter asks of a model: the sinusoids are no table
    pe_names: ClassVar[tuple[str, ...]] = ()
    pe_prefix: ClassVar[int] = 0
    recorded_arguments: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        encoder: dict,
        pe_type: PositionType = 'sine',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        grid: Grid = (25, 42),
        **kwargs,
    ):
        position = resolve_position(pe_type, pe_joining, pe_norm)
        if position.absolute is not None and position.absolute.name != 'sine':
            raise ConfigError(
                f"mmlape.DETR: the absolute PE of pe_type={pe_type!r} must be 'sine', not "
                f'{position.absolute.name!r}, whose table knows no padding'
            )
        if position.between:
            names = ', '.join(cfg['type'] for cfg in position.between)
            raise ConfigError(f'mmlape.DETR: pe_type={pe_type!r} has {names}, which acts between layers: leave it out')
        choices = fitting_joinings()
        if pe_joining not in choices:
            raise ConfigError(f'mmlape.DETR: pe_joining={pe_joining!r}; choose one of: {", ".join(choices)}')
        grid = tuple(grid)
        # mmdetection writes into them, and could not build a second model
        kwargs = copy.deepcopy(kwargs)
        super().__init__(encoder=dict(copy.deepcopy(encoder), position=position, grid=grid), **kwargs)
        self.position, self.grid = position, grid
        resize_on_load(self)

    def absent_parts(self) -> tuple[str, ...]:
        """Return nothing: a file has no other parts than the model."""
        return ()

    def stored_tables(self) -> tuple[str, ...]:
        """Return nothing: files have no table of sinusoids."""
        return ()

    def _init_layers(self) -> None:
        """Build what mmdetection's method builds, with our encoder."""
        self.positional_encoding = SinePositionalEncoding(**self.positional_encoding)
        self.encoder = Encoder(**self.encoder)
        self.decoder = DetrTransformerDecoder(**self.decoder)
        self.embed_dims = self.encoder.embed_dims
        self.query_embedding = nn.Embedding(self.num_queries, self.embed_dims)

    def init_weights(self) -> None:
        """Initialise as DETR; a table inside attention gets Xavier's values as in the public code, if it is zero."""
        tables = [table for layer in self.encoder.layers for table in layer.self_attn.tables()]
        initial = {table: table.detach().clone() for table in tables if table.any()}
        if not load_pretrained(self):
            super().init_weights()
            with torch.no_grad():
                for table, value in initial.items():
                    table.copy_(value)

    def norm_places(self) -> NormPlaces:
        """Return where there are norms of the PE."""
        return NormPlaces(tuple(layer.pe_norm is not None for layer in self.all_layers), None)

    @property
    def all_layers(self) -> nn.ModuleList:
        """The layers of the encoder."""
        return self.encoder.layers

    @property
    def layer_names(self) -> list[str]:
        """What the parameter names of each layer of the encoder begin with."""
        return [f'encoder.layers.{number}.' for number in range(len(self.encoder.layers))]

    def pre_transformer(self, img_feats: tuple[Tensor], batch_data_samples: list | None = None) -> tuple[dict, dict]:
        """Return the arguments of ``forward_encoder`` and some of ``forward_decoder``."""
        encoder, decoder = super().pre_transformer(img_feats, batch_data_samples)
        encoder['hw'] = tuple(img_feats[-1].shape[-2:])
        # mmdetection has float32, which a norm in another precision refuses
        pe = encoder['feat_pos'].to(self.query_embedding.weight.dtype)
        without = self.position.absolute is None
        encoder['feat_pos'] = None if without else pe
        # mmcv's attention would take that of the queries for None, where there are as many of them
        # as keys
        decoder['memory_pos'] = torch.zeros_like(pe) if without else pe
        return encoder, decoder

    def forward_encoder(self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor | None, hw: Grid) -> dict:
        """Encode a map; see ``Encoder``."""
        return dict(memory=self.encoder(feat, feat_pos, feat_mask, hw))
