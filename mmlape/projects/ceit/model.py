"""CeiT (ICCV 2021): a convolutional stem, layers with a locally-enhanced FFN, attention over their class tokens.

x = [cls; i2t(image)];  x <- layer_l(x, PE);  LN(LCA(x_1[cls] + p_1, ..., x_L[cls] + p_L))
without cls: LN(LCA(mean(x_1) + p_1, ..., mean(x_L) + p_L))
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.initial_values import init_linear
from mmlape.models.base.isotropic import OUT_TYPES, IsotropicBackbone, require_cls_token
from mmlape.models.grid import Grid
from mmlape.models.named_layers import build_norm
from mmlape.models.names import name_models, resolve_arch
from mmlape.models.position import PositionType, Stream, resolve_position
from mmlape.projects.ceit.layers import ImageToTokens, LayerClassAttention, LeFFLayer


def _arch(num_heads: int) -> dict:
    embed_dims = 64 * num_heads
    return dict(
        embed_dims=embed_dims,
        num_layers=12,
        num_heads=num_heads,
        feedforward_channels=4 * embed_dims,
        stem_channels=64,
    )


WITH_LCA = ('cls_token', 'layer_pool')
ARCHS = {'tiny': _arch(3), 'small': _arch(6), 'base': _arch(12)}


class CeiT(IsotropicBackbone):
    """CeiT with a choice of position encodings, their joining (LaPE) and Dual PatchNorm.

    Images of any size of at least 16 pixels work, padded with zeros on the right and the bottom to multiples of 16, so
    a feature map has ``ceil(side / 16)`` cells a side. Parameter names are the public code's, with LaPE's
    ``blocks.N.pe_norm``. Layer-wise class attention (LCA) makes the class token of ``out_type='cls_token'``; a model
    with other outputs does not have it, but for 'layer_pool'. The joining concerns ``pos_embed``; ``pos_layer_embed``,
    a PE over layers, is always added to LCA's input.

    PVG and MPVG take the class token away. Their paper does not say what LCA then attends to, but by its parameter
    counts LCA stays: 'layer_pool' gives it the mean of each layer's patch tokens. Behind it the last norm sees one
    pooled token, which joins the mean of the normed PE.

    Arguments that are not listed are those of ``VisionTransformer``.

    Args:
        arch: 'tiny', 'small', 'base', or a dict with ``embed_dims``, ``num_layers``, ``num_heads``,
            ``feedforward_channels`` and ``stem_channels``, the width of the convolutional stem.
        out_type: 'cls_token' (B, D), of the last layer through LCA; 'layer_pool' (B, D), the same of the means of the
            patch tokens; 'raw' all tokens (B, N, D); 'featmap' (B, D, rows, columns); 'avg_featmap', the mean of the
            patch tokens (B, D).
        with_cls_token: Whether a class token runs along; without it, take another ``out_type`` than 'cls_token'.
        patch_norm: Norms before and after the patches' linear map, over the 4x4 cells of all stem channels and over D:
            'none', 'dual', 'pre', 'post', 'learnable-only', 'no-learnable' or 'rms'.
        drop_rate: Dropout of embeddings, of attention's projections and of LCA's FFN.
        drop_path_rate: Stochastic depth of the last layer; it grows linearly from 0. LCA has none.
        bn_cfg: Of the batch norms in the stem and in the layers.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the valid choices.
    """

    model_names = name_models('ceit-{}', ARCHS)
    paper_name = 'CeiT'
    out_types = (*OUT_TYPES, 'layer_pool')
    without_prefix = "set with_cls_token=False and out_type='layer_pool', or 'featmap' for maps"
    archs = ARCHS
    checkpoint_adapter = CheckpointAdapter(signs=(r'i2t\.proj\.', r'blocks\.0\.leff\.'))
    embedding_names = ('i2t.',)
    patch_size = 16

    def __init__(
        self,
        arch: str | dict = 'tiny',
        img_size: int | tuple[int, int] = 224,
        in_channels: int = 3,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'cls_token',
        with_cls_token: bool = True,
        pe_type: PositionType = 'learnable',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        patch_norm: str = 'none',
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        bn_cfg: dict | None = None,
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.register_arguments(locals())
        arch = self.arch = resolve_arch(arch, ARCHS)
        dims, depth = arch['embed_dims'], arch['num_layers']
        self.embed_dims = dims
        self.in_channels = in_channels
        self.frozen_stages = frozen_stages
        self.grid: Grid = self.grid_of(img_size)
        self.set_outputs(out_type, out_indices, depth)
        require_cls_token(out_type, with_cls_token)
        self.position = resolve_position(pe_type, pe_joining, pe_norm)

        self.recorded_arguments = {'patch_norm': patch_norm}
        bn_cfg = bn_cfg or dict(type='BN')
        norm_cfg = dict(type='LN', eps=1e-6)
        self.i2t = ImageToTokens(
            in_channels=in_channels,
            channels=arch['stem_channels'],
            embed_dims=dims,
            patch_norm=patch_norm,
            eps=norm_cfg['eps'],
            bn_cfg=bn_cfg,
        )
        self.add_prefix_tokens(dict(cls_token=1) if with_cls_token else {})
        self.add_tables(depth)
        self.pos_drop = nn.Dropout(drop_rate)
        self.blocks = self.build_blocks(
            LeFFLayer,
            dict(proj_drop_rate=drop_rate),
            drop_path_rate=drop_path_rate,
            bn_cfg=bn_cfg,
            norm_cfg=norm_cfg,
            with_cp=with_cp,
        )
        self.lca = self.pos_layer_embed = None
        if out_type in WITH_LCA:
            self.lca = LayerClassAttention(
                embed_dims=dims,
                num_heads=arch['num_heads'],
                feedforward_channels=arch['feedforward_channels'],
                drop_rate=drop_rate,
                norm_cfg=norm_cfg,
            )
            self.pos_layer_embed = nn.Parameter(torch.zeros(1, depth, dims))
        self.norm = build_norm(norm_cfg, dims)
        self.apply(init_linear)
        self.complete()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one output per out index of images (B, C, H, W); the final norm applies to the last layer."""
        x, first_pe, hw = self.embed(x)
        outs, pe = {}, first_pe
        if self.lca is None:
            for number, layer in enumerate(self.blocks[: max(self.out_indices) + 1]):
                x, pe = layer(x, pe, hw)  # (B, P + N, D), and the PE for the next layer
                if number in self.out_indices:
                    outs[number] = self.output(x, hw, number, first_pe)
            return tuple(outs[number] for number in self.out_indices)
        tokens = []
        for layer in self.blocks:
            x, pe = layer(x, pe, hw)
            tokens.append(x[:, 0] if self.out_type == 'cls_token' else self.split_prefix(x)[1].mean(dim=1))
        last = self.lca(torch.stack(tokens, dim=1) + self.pos_layer_embed)  # (B, D)
        last = self.position.joining.finish(last[:, None], first_pe, self.norm, self._pooled_pe)[:, 0]
        return tuple([*tokens[:-1], last][index] for index in self.out_indices)

    def _pooled_pe(self, pe: Tensor) -> Tensor:
        """Return the mean (1, 1, D) of the PE (1, N, D) behind the last norm's norm of the PE."""
        return self.pe_norm(pe).mean(dim=1, keepdim=True)

    def embed(self, x: Tensor) -> tuple[Tensor, Stream, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), its PE, and the patches' grid."""
        x, hw = self.i2t(x)  # (B, N, D)
        x, pe = self.add_position(x, hw)  # (B, P + N, D)
        return self.pos_drop(x), pe, hw

    def absent_parts(self) -> tuple[str, ...]:
        """Return LCA's parts where this model has none."""
        return super().absent_parts() + (() if self.lca else ('lca.', 'pos_layer_embed'))
