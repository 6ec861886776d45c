"""CeiT (ICCV 2021): a convolutional stem, layers with a locally-enhanced FFN, attention over their class tokens.

x = [cls; i2t(image)];  x <- layer_l(x, PE);  LN(LCA(x_1[cls] + p_1, ..., x_L[cls] + p_L))
without cls: LN(LCA(mean(x_1) + p_1, ..., mean(x_L) + p_L))

i2t = Conv4x4(MaxPool(BN(Conv7x7(x))))
LeFF(patches) = BN(Conv1x1(GELU(BN(DWConv3x3(GELU(BN(Conv1x1(patches))))))))
LCA(z) = y + FFN(LN(y)),  y = z_L + Attention(query z_L, keys and values z_1 ... z_L)
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.isotropic import OUT_TYPES, IsotropicBackbone, require_cls_token
from mmlape.models.grid import Grid, channels_last, to_maps
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.patch_embed import PatchEmbed, complete_patches, norms_around
from mmlape.models.layers.transformer_layer import FFN, BaseTransformerLayer
from mmlape.models.model_names import name_models, resolve_arch
from mmlape.models.named_layers import build_norm, init_linear
from mmlape.models.position import Joining, PositionType, Stream, resolve_position

STRIDE = 16


class ConvStem(nn.Module):
    """A convolution, batch norm and max pooling to stride 4.

    There is no activation, as in the public code.
    """

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
        if self.lca is None:
            return super().forward(x)
        x, first_pe, hw = self.embed(x)
        pe, tokens = first_pe, []
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
