"""T2T-ViT (ICCV 2021): tokens by soft splits with attention between them, then the layers of a ViT.

x = [cls; tokens_to_token(image)];  x <- layer_l(x, PE);  LN(x)
"""

from collections.abc import Sequence

from torch import Tensor, nn

from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.initial_values import init_linear
from mmlape.models.base.isotropic import IsotropicBackbone, require_cls_token
from mmlape.models.grid import Grid
from mmlape.models.layers.transformer_layer import TransformerEncoderLayer
from mmlape.models.named_layers import build_norm
from mmlape.models.names import name_models, resolve_arch
from mmlape.models.position import PositionType, Stream, resolve_position
from mmlape.projects.t2t.layers import TokensToToken


def _arch(num_layers: int, num_heads: int, mlp_ratio: int) -> dict:
    embed_dims = 64 * num_heads
    return dict(
        embed_dims=embed_dims,
        num_layers=num_layers,
        num_heads=num_heads,
        feedforward_channels=mlp_ratio * embed_dims,
        token_dims=64,
    )


ARCHS = {
    't2t-vit-7': _arch(7, 4, 2),
    't2t-vit-10': _arch(10, 4, 2),
    't2t-vit-12': _arch(12, 4, 2),
    't2t-vit-14': _arch(14, 6, 3),
    't2t-vit-19': _arch(19, 7, 3),
    't2t-vit-24': _arch(24, 8, 3),
}


class T2TViT(IsotropicBackbone):
    """T2T-ViT with a choice of position encodings, their joining (LaPE) and Dual PatchNorm.

    Images of any size of at least 16 pixels work, padded with zeros on the right and the bottom to multiples of 16, so
    a feature map has ``ceil(side / 16)`` cells a side. Parameter names are the public code's, with LaPE's
    ``blocks.N.pe_norm``; sinusoids and the performers' random features, frozen parameters there, are buffers of the
    same names. Attention scales its logits by the heads' width (64^-0.5), with which the public recipe trains; the
    public code's ``pretrained=True`` sets another scale.

    Arguments that are not listed are those of ``VisionTransformer``.

    Args:
        arch: 't2t-vit-7', '-10', '-12', '-14', '-19', '-24', or a dict with ``embed_dims``, ``num_layers``,
            ``num_heads``, ``feedforward_channels`` and ``token_dims``, the width between the splits.
        tokens_type: 'performer', or 'transformer' (the public T2T-ViT_t).
        patch_norm: Norms before and after the last linear map of the stem, over the 9 * ``token_dims`` values of a
            window and over D: 'none', 'dual', 'pre', 'post', 'learnable-only', 'no-learnable' or 'rms'.
        with_cls_token: Whether a class token runs along; without it, take another ``out_type`` than 'cls_token'.
        drop_rate: Dropout of embeddings, projections and FFN; the performers' own is always 0.1.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the valid choices.
    """

    model_names = name_models('{}', ARCHS)
    paper_name = 'T2T-ViT'
    archs = ARCHS
    checkpoint_adapter = CheckpointAdapter(signs=(r'tokens_to_token\.project\.', r'blocks\.0\.attn\.qkv\.'))
    embedding_names = ('tokens_to_token.',)
    patch_size = 16

    def __init__(
        self,
        arch: str | dict = 't2t-vit-7',
        img_size: int | tuple[int, int] = 224,
        in_channels: int = 3,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'cls_token',
        with_cls_token: bool = True,
        tokens_type: str = 'performer',
        pe_type: PositionType = 'sincos1d',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        patch_norm: str = 'none',
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.register_arguments(locals())
        arch = self.arch = resolve_arch(arch, ARCHS)
        depth = arch['num_layers']
        self.embed_dims = arch['embed_dims']
        self.in_channels = in_channels
        self.frozen_stages = frozen_stages
        self.recorded_arguments = {'patch_norm': patch_norm}
        self.grid: Grid = self.grid_of(img_size)
        self.set_outputs(out_type, out_indices, depth)
        require_cls_token(out_type, with_cls_token)
        self.position = resolve_position(pe_type, pe_joining, pe_norm)

        norm_cfg = dict(type='LN', eps=1e-5)
        self.tokens_to_token = TokensToToken(
            in_channels=in_channels,
            embed_dims=self.embed_dims,
            token_dims=arch['token_dims'],
            tokens_type=tokens_type,
            patch_norm=patch_norm,
            eps=norm_cfg['eps'],
        )
        self.add_prefix_tokens(dict(cls_token=1) if with_cls_token else {})
        self.add_tables(depth)
        self.pos_drop = nn.Dropout(drop_rate)
        self.blocks = self.build_blocks(
            TransformerEncoderLayer,
            dict(qkv_bias=False, proj_drop_rate=drop_rate),
            drop_path_rate=drop_path_rate,
            drop_rate=drop_rate,
            norm_cfg=norm_cfg,
            with_cp=with_cp,
        )
        self.norm = build_norm(norm_cfg, self.embed_dims)
        self.apply(init_linear)
        self.complete()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one output per out index of images (B, C, H, W); the final norm applies to the last layer."""
        x, first_pe, hw = self.embed(x)
        outs, pe = {}, first_pe
        for number, layer in enumerate(self.blocks[: max(self.out_indices) + 1]):
            x, pe = layer(x, pe, hw)  # (B, P + N, D), and the PE for the next layer
            if number in self.out_indices:
                outs[number] = self.output(x, hw, number, first_pe)
        return tuple(outs[number] for number in self.out_indices)

    def embed(self, x: Tensor) -> tuple[Tensor, Stream, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), its PE, and the patches' grid."""
        x, hw = self.tokens_to_token(x)  # (B, N, D)
        x, pe = self.add_position(x, hw)  # (B, P + N, D)
        return self.pos_drop(x), pe, hw
