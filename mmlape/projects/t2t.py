"""T2T-ViT (ICCV 2021): tokens by soft splits with attention between them, then the layers of a ViT.

x = [cls; tokens_to_token(image)];  x <- layer_l(x, PE);  LN(x)

Overlapping windows become tokens, three times (section 3.1):

    tokens = Linear(split(attention2(split(attention1(split(x))))))

A split takes each window's values as one token: 7x7 pixels at stride 4, then 3x3 tokens at stride
2, twice. The attention between them is that of a transformer or of a performer (ICLR 2021), which
is linear in the tokens:

    y = phi(q) (phi(k)^T v) / (phi(q) sum phi(k) + 1e-8),  phi(x) = exp(W x - |x|^2 / 2) / sqrt(m)
"""

import contextlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import require_choice
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.isotropic import IsotropicBackbone, require_cls_token
from mmlape.models.grid import Grid, to_maps
from mmlape.models.layers.patch_embed import complete_patches, norms_around
from mmlape.models.layers.transformer_layer import FFN, TransformerEncoderLayer, full_precision
from mmlape.models.model_names import name_models, resolve_arch
from mmlape.models.named_layers import build_norm, init_linear
from mmlape.models.position import PositionType, Stream, resolve_position

STRIDE = 16


class TokenAttention(nn.Module):
    """Single-head attention that maps tokens to another width.

    Its values take the place of the residual stream. The logits are scaled by the width of the
    input, as in the public code, and not by that of the queries.
    """

    def __init__(self, in_dims: int, dims: int):
        super().__init__()
        self.qkv = nn.Linear(in_dims, 3 * dims, bias=False)
        self.proj = nn.Linear(dims, dims)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, in_dims) to (B, N, dims)."""
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)  # (B, 1, N, dims) each
        out = F.scaled_dot_product_attention(q, k, v, scale=self.qkv.in_features**-0.5)
        return (v + self.proj(out))[:, 0]


class TokenTransformer(nn.Module):
    """A transformer layer from one width to another: v + proj(attention), then x + FFN(LN(x))."""

    def __init__(self, in_dims: int, dims: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(in_dims)
        self.attn = TokenAttention(in_dims, dims)
        self.norm2 = nn.LayerNorm(dims)
        self.mlp = FFN(dims, dims)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, in_dims) to (B, N, dims)."""
        x = self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TokenPerformer(nn.Module):
    """The same with a performer's attention, whose random features ``w`` are fixed and kept in checkpoints.

    Exponentials reach e^16, so they and their sums are computed in float32 at least.
    """

    def __init__(self, in_dims: int, dims: int, drop_rate: float = 0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(in_dims)
        self.kqv = nn.Linear(in_dims, 3 * dims)
        self.proj = nn.Linear(dims, dims)
        self.drop = nn.Dropout(drop_rate)
        self.norm2 = nn.LayerNorm(dims)
        self.mlp = nn.Sequential(nn.Linear(dims, dims), nn.GELU(), nn.Linear(dims, dims), nn.Dropout(drop_rate))
        features = max(1, dims // 2)
        self.register_buffer('w', nn.init.orthogonal_(torch.empty(features, dims)) * features**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, in_dims) to (B, N, dims)."""
        # in the order of the public code's weights
        k, q, v = self.kqv(self.norm1(x)).chunk(3, dim=-1)
        wide = torch.promote_types(v.dtype, torch.float32)
        with _without_autocast(v.device.type):
            y = self._attend(k.to(wide), q.to(wide), v.to(wide))
        x = v + self.drop(self.proj(y.to(v.dtype)))
        return x + self.mlp(self.norm2(x))

    def _attend(self, k: Tensor, q: Tensor, v: Tensor) -> Tensor:
        k, q = self._features(k), self._features(q)  # (B, N, m)
        total = q @ k.sum(dim=1, keepdim=True).mT  # (B, N, 1)
        # 1 / (total + 1e-8) in a form from which ONNX's exporter does not drop the 1e-8 as zero
        return q @ (k.mT @ v) * (1e8 / (1e8 * total + 1))

    def _features(self, x: Tensor) -> Tensor:
        """Return positive random features, whose products estimate exp(x y)."""
        projected = F.linear(x, self.w.to(x.dtype))
        return (projected - x.square().sum(dim=-1, keepdim=True) / 2).exp() * len(self.w) ** -0.5


def _without_autocast(device: str) -> contextlib.AbstractContextManager:
    """Return a context without autocast.

    Nothing where there is none, since exported graphs would show it.
    """
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


TOKEN_LAYERS = {'performer': TokenPerformer, 'transformer': TokenTransformer}


class TokensToToken(nn.Module):
    """Image to tokens (B, N, D) at stride 16, any size.

    Sides are padded with zeros on the right and the bottom. Between the splits there are
    ``token_dims`` channels, and layers of ``tokens_type``, a key of ``TOKEN_LAYERS``. The norms
    before and after the last linear map are those of ``norms_around``.

    Raises:
        ConfigError: For an unknown ``tokens_type`` or ``patch_norm``.
    """

    def __init__(
        self, in_channels: int, embed_dims: int, token_dims: int, tokens_type: str, patch_norm: str, eps: float
    ):
        super().__init__()
        require_choice('tokens_type', tokens_type, TOKEN_LAYERS)
        pre, post = norms_around(patch_norm)
        layer, dims = TOKEN_LAYERS[tokens_type], 3 * 3 * token_dims
        self.attention1 = layer(7 * 7 * in_channels, token_dims)
        self.attention2 = layer(dims, token_dims)
        self.norm0 = pre(dims, eps=eps) if pre else None
        self.project = nn.Linear(dims, embed_dims)
        self.norm1 = post(embed_dims, eps=eps) if post else None

    def forward(self, x: Tensor) -> tuple[Tensor, Grid]:
        """Map images (B, C, H, W) to tokens (B, N, D) and their grid.

        Raises:
            ValueError: If a side is smaller than 16 pixels.
        """
        # the strides 4, 2 and 2 of the splits then leave no rest
        x = full_precision(complete_patches(x, STRIDE), self)
        height, width = (int(side) for side in x.shape[-2:])
        x = self.attention1(_split(x, 7, 4, 2))
        x = self.attention2(_split(to_maps(x, (height // 4, width // 4)), 3, 2, 1))
        x = _split(to_maps(x, (height // 8, width // 8)), 3, 2, 1)
        x = self.project(x if self.norm0 is None else self.norm0(x))
        return (x if self.norm1 is None else self.norm1(x)), (height // STRIDE, width // STRIDE)


def _split(maps: Tensor, window: int, stride: int, padding: int) -> Tensor:
    """Return the values of overlapping windows, (B, C, H, W) to (B, N, C * window^2)."""
    return F.unfold(maps, window, padding=padding, stride=stride).transpose(1, 2)


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

    def embed(self, x: Tensor) -> tuple[Tensor, Stream, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), its PE, and the patches' grid."""
        x, hw = self.tokens_to_token(x)  # (B, N, D)
        x, pe = self.add_position(x, hw)  # (B, P + N, D)
        return self.pos_drop(x), pe, hw
