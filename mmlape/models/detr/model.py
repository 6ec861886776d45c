"""DETR (ECCV 2020) with any position encodings in its encoder's self-attention; the rest is mmdetection's.

`type='mmlape.DETR'`; parameters have mmdetection's names, tables those of the public iRPE code.
"""

import copy
from typing import Any, ClassVar

import torch
from mmdet.models.detectors import DETR as PlainDETR
from mmdet.models.layers import DetrTransformerDecoder, SinePositionalEncoding
from torch import Tensor, nn

from mmlape.checkpoint.loading import LoadReport, load_pretrained
from mmlape.errors import ConfigError
from mmlape.models.detr.checkpoint import DETRCheckpointAdapter, fitting_joinings
from mmlape.models.detr.layers import Encoder
from mmlape.models.grid import Grid
from mmlape.models.position import PositionType, resolve_position
from mmlape.registry import MODELS


@MODELS.register_module()
class DETR(PlainDETR):
    """mmdetection's detector with an encoder of ours.

    The sinusoids know the padding of each image. The decoder's keys get them as they are, whatever the joining, and
    nothing with a ``pe_type`` without 'sine'.

    Args:
        encoder: ``num_layers`` and ``layer_cfg`` of mmdetection's, and ``with_cp``.
        pe_type: 'sine', 'none', a kind inside attention, or a list of 'sine' and such kinds.
        pe_joining: 'default' adds the PE to queries and keys in every layer, as DETR does; 'lape' and 'lape-shared'
            norm it before, which is our extension.
        pe_norm: Which norm, a key of ``PE_NORMS``.
        grid: Feature map that tables of one grid are made for; by default that of an 800 x 1333 image.
        **kwargs: Of mmdetection's DETR.

    Raises:
        ConfigError: For another absolute kind or joining, a kind between layers, or what ``resolve_position`` refuses.
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
                f"mmlape.DETR: the absolute PE of pe_type={pe_type!r} must be 'sine', not {position.absolute.name!r}, "
                'whose table knows no padding'
            )
        if position.between:
            names = ', '.join(cfg['type'] for cfg in position.between)
            raise ConfigError(f'mmlape.DETR: pe_type={pe_type!r} has {names}, which acts between layers: leave it out')
        choices = fitting_joinings()
        if pe_joining not in choices:
            raise ConfigError(f'mmlape.DETR: pe_joining={pe_joining!r}; choose one of: {", ".join(choices)}')
        grid = tuple(grid)
        kwargs = copy.deepcopy(kwargs)  # mmdetection writes into them, and could not build a second model
        super().__init__(encoder=dict(copy.deepcopy(encoder), position=position, grid=grid), **kwargs)
        self.position, self.grid = position, grid
        self.checkpoint_adapter.attach(self)

    def absent_parts(self) -> tuple[str, ...]:
        """Return nothing: a file has no other parts than the model."""
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
        # mmcv's attention would take that of the queries for None, where there are as many of them as keys
        decoder['memory_pos'] = torch.zeros_like(pe) if without else pe
        return encoder, decoder

    def forward_encoder(self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor | None, hw: Grid) -> dict:
        """Encode a map; see ``Encoder``."""
        return dict(memory=self.encoder(feat, feat_pos, feat_mask, hw))
