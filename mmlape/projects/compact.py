"""ViT-Lite, CVT and CCT ('Escaping the Big Data Paradigm', arXiv 2104.05704): one transformer, with LaPE's joinings.

    patches:       tokens = Conv(x), kernel = stride
    convolutions:  x <- MaxPool(ReLU(Conv(x))), one or several times
    layer:         x <- x + Attention(join(x, pe));  x <- norm1(x);  x <- x + MLP(x)
    pooling:       z = sum_i softmax_i(u . x_i + b) x_i, over the tokens after the final norm

The residual stream itself is normed before the MLP, so a PE added at the input is normed again in
every layer. Parameter names are those of the public code.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Layout, NameTable, Target, Tensors, Weights, rename_keys
from mmlape.errors import ConfigError, require_choice
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.fitting import TensorNames
from mmlape.models.base.isotropic import OUT_TYPES, IsotropicBackbone, build_norm_pre
from mmlape.models.grid import Grid, require_patch
from mmlape.models.layers.patch_embed import PatchEmbed
from mmlape.models.layers.transformer_layer import BaseTransformerLayer
from mmlape.models.model_names import VARIANTS, name_models, resolve_arch
from mmlape.models.named_layers import build_norm, init_linear
from mmlape.models.position import AbsolutePosition, Joining, PositionType, Stream, resolve_position


class PatchTokenizer(PatchEmbed):
    """``PatchEmbed`` under the public code's names."""

    def __init__(
        self, in_channels: int, embed_dims: int, patch_size: int, patch_norm: str = 'none', eps: float = 1e-5
    ):
        super().__init__(in_channels, embed_dims, patch_size, patch_norm, eps)
        self.conv_layers = nn.Sequential(nn.Sequential(self._modules.pop('proj')))

    @property
    def proj(self) -> nn.Conv2d:
        """The convolution."""
        return self.conv_layers[0][0]


def conv_stride(kernel_size: int) -> int:
    """Return the stride that the public code gives a convolution."""
    return max(1, kernel_size // 2 - 1)


def patch_side(tokenizer: dict) -> int:
    """Return the side in pixels that a token of a tokenizer stands for."""
    if tokenizer['type'] == 'patch':
        return tokenizer['patch_size']
    return (2 * conv_stride(tokenizer['kernel_size'])) ** tokenizer['num_convs']


class ConvTokenizer(nn.Module):
    """Convolutions without bias, each followed by ReLU and a max pooling of 3x3 with stride 2.

    Any image size. Stride and padding follow the kernel size K as in the public code, max(1, K // 2
    - 1) and K // 2. A side of n pixels then becomes ceil(n / patch_size) tokens.
    """

    hidden_channels = 64  # of all but the last convolution, in every size of the public code

    def __init__(self, in_channels: int, embed_dims: int, kernel_size: int = 3, num_convs: int = 1):
        super().__init__()
        stride = conv_stride(kernel_size)
        self.patch_size = (2 * stride) ** num_convs
        channels = [in_channels, *[self.hidden_channels] * (num_convs - 1), embed_dims]
        self.conv_layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(c_in, c_out, kernel_size, stride, kernel_size // 2, bias=False),
                    nn.ReLU(),
                    nn.MaxPool2d(3, 2, 1),
                )
                for c_in, c_out in zip(channels, channels[1:])
            )
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Grid]:
        """Return the tokens (B, N, D) of images (B, C, H, W), and their grid."""
        require_patch(x, 1)
        x = self.conv_layers(x)
        # (B, N, D); contiguous since sums keep the memory layout of their first term
        return x.flatten(2).transpose(1, 2).contiguous(), (int(x.shape[2]), int(x.shape[3]))


TOKENIZERS = {'patch': PatchTokenizer, 'conv': ConvTokenizer}


class CompactLayer(BaseTransformerLayer):
    """The layer of Compact Transformers; the PE joins at ``pre_norm`` only."""

    norm_name = 'pre_norm'
    attn_name = 'self_attn'

    def __init__(self, embed_dims: int, attn: nn.Module, joining: Joining, feedforward_channels: int, **kwargs):
        super().__init__(embed_dims, attn, joining, **kwargs)
        self.norm1 = build_norm(self.norm_cfg, embed_dims)
        self.linear1 = nn.Linear(embed_dims, feedforward_channels)
        self.linear2 = nn.Linear(feedforward_channels, embed_dims)

    def run(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer, keeping all activations."""
        x, attn_input, pe = self.join(x, pe)
        x = self.norm1(x + self.drop_path(self.self_attn(attn_input, hw)))
        return x + self.drop_path(self.linear2(F.gelu(self.linear1(x)))), pe

    def join_position(self, x: Tensor, pe: Stream) -> tuple[Tensor, Tensor, Stream]:
        """Return what ``BaseTransformerLayer`` does.

        The norm of the stream also norms a PE in it.
        """
        x, seen, pe = super().join_position(x, pe)
        return self.norm1(x), seen, pe


POOLINGS = ('cls_token', 'sequence_pool')
_SIZES = {2: (128, 2, 128), 4: (128, 2, 128), 6: (256, 4, 512), 7: (256, 4, 512), 14: (384, 6, 1152)}
_CONVS = ((2, 3, 2), (4, 3, 2), (6, 3, 1), (6, 3, 2), (7, 3, 1), (7, 3, 2), (7, 7, 2), (14, 7, 2))


def _arch(num_layers: int, tokenizer: dict, pooling: str) -> dict:
    embed_dims, num_heads, hidden = _SIZES[num_layers]
    return dict(
        embed_dims=embed_dims,
        num_layers=num_layers,
        num_heads=num_heads,
        feedforward_channels=hidden,
        tokenizer=tokenizer,
        pooling=pooling,
    )


_PATCHES = dict(type='patch', patch_size=4)
ARCHS = {
    **{f'vit-lite-{n}/4': _arch(n, _PATCHES, 'cls_token') for n in (2, 4, 6, 7)},
    **{f'cvt-{n}/4': _arch(n, _PATCHES, 'sequence_pool') for n in (2, 4, 6, 7)},
    **{
        f'cct-{n}/{k}x{convs}': _arch(n, dict(type='conv', kernel_size=k, num_convs=convs), 'sequence_pool')
        for n, k, convs in _CONVS
    },
}


# files: the public layout, both ways

CLASS_TOKEN, POOL = 'class_emb', 'attention_pool.'
NAMES = TensorNames('positional_emb', attn='self_attn.')

PUBLIC_NAMES = NameTable({'classifier.fc.': 'head.fc.', 'tokenizer.': 'tokenizer.', 'classifier.': ''})


def _to_public(tensors: Tensors) -> Tensors:
    return PUBLIC_NAMES.write(rename_keys(tensors, [(r'^head\.(?!fc\.)', 'head.fc.')]))


LAYOUTS = (
    Layout(
        'compact-transformers',
        (r'classifier\.blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.'),
        PUBLIC_NAMES.read,
    ),
    Layout('compact', (r'blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.')),
)


def _other_pooling(weights: Weights) -> list[str]:
    """Return what pools the tokens otherwise than by the class token or by sequence pooling."""
    if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
        return ['a model without pooling']
    pooled = weights.recorded.get('out_type', 'cls_token')
    other = weights.head_tensors and pooled not in ('cls_token', 'sequence_pool')
    return [f'a head on out_type={pooled!r}'] if other else []


PUBLIC = Target(
    _to_public,
    names=r'tokenizer\.conv_layers\.\d+\.0\.\w+|positional_emb|class_emb|(attention_pool|norm)\.\w+'
    r'|blocks\.\d+\.(pre_norm|norm1|linear[12]|self_attn\.(qkv|proj))\.\w+',
    encodings=((AbsolutePosition,), ()),
    arguments={'pe_joining': ['default'], 'patch_norm': ['none'], 'out_type': None},
    clashes=_other_pooling,
)


class CompactCheckpointAdapter(CheckpointAdapter):
    """The public code's names, with ``classifier.`` and without."""

    public_layouts = LAYOUTS
    public_targets: ClassVar[Mapping[str, Target]] = {'compact-transformers': PUBLIC}
    names = NAMES
    assumed_arguments: ClassVar[Mapping[str, Any]] = {'patch_norm': 'none'}

    def notes(self, weights: Weights) -> list[str]:
        """Return what the public weights want."""
        unknown = weights.normalisation is None
        return ["images: the public weights want their dataset's mean and std"] * unknown


def _paper_name(arch: str | dict) -> str:
    """Return the family of an arch as the papers name it."""
    arch = ARCHS[arch] if isinstance(arch, str) else arch
    if arch['tokenizer']['type'] == 'conv':
        return 'CCT'
    return 'ViT-Lite' if arch['pooling'] == 'cls_token' else 'CVT'


class CompactTransformer(IsotropicBackbone):
    """ViT-Lite, CVT or CCT; the default arguments are those of the public CCT-7/3x1 for 32x32 pixels.

    Images of any size work: patches are padded to completeness with zeros on the right and the bottom, convolutions
    pad by themselves, and an absolute PE is resized to the grid. Parameter names are those of the public code below
    ``classifier.`` and ``tokenizer.``, with LaPE's ``blocks.N.pe_norm``.

    Arguments that are not listed are those of ``VisionTransformer``.

    Args:
        arch: 'vit-lite-7/4', 'cvt-7/4', 'cct-7/3x1' or another size of the public code, or a dict with ``embed_dims``,
            ``num_layers``, ``num_heads``, ``feedforward_channels``, ``tokenizer`` (``dict(type='patch',
            patch_size=P)`` or ``dict(type='conv', kernel_size=K, num_convs=N)``) and ``pooling`` ('cls_token' or
            'sequence_pool').
        out_type: 'cls_token' (ViT-Lite) or 'sequence_pool' (CVT and CCT), (B, D) both; 'raw' all tokens (B, N, D);
            'featmap' (B, D, rows, columns); 'avg_featmap', the mean of the tokens of the image (B, D). None for the
            pooling of the arch.
        patch_norm: 'none', 'dual', or an ablation of DPN's Table 6; ViT-Lite and CVT only.
        interpolate_mode: Of PE resizing, as in ``torch.nn.functional.interpolate``, or 'tile'; bilinear in the public
            code.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the valid choices.
    """

    # convolutions overlap, so CCT has no patches that DPN could norm
    model_names = {
        **name_models('{}', [arch for arch in ARCHS if not arch.startswith('cct')]),
        **name_models('{}', [arch for arch in ARCHS if arch.startswith('cct')], {'lape': VARIANTS['lape']}),
    }
    paper_name = staticmethod(_paper_name)
    archs = ARCHS
    checkpoint_adapter = CompactCheckpointAdapter()
    table_name = 'positional_emb'
    embedding_names = ('tokenizer.', 'norm_pre.')
    prefix_tokens = ('class_emb',)
    without_prefix = "take an arch with pooling='sequence_pool', such as 'cvt-7/4' with out_type='avg_featmap'"
    out_types = (*OUT_TYPES, 'sequence_pool')

    def __init__(
        self,
        arch: str | dict = 'cct-7/3x1',
        img_size: int | tuple[int, int] = 32,
        in_channels: int = 3,
        out_indices: int | Sequence[int] = -1,
        out_type: str | None = None,
        pe_type: PositionType = 'learnable',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        patch_norm: str = 'none',
        attn_drop_rate: float = 0.1,
        drop_path_rate: float = 0.1,
        interpolate_mode: str = 'bilinear',
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.register_arguments(locals())
        self.arch = _resolve_arch(arch)
        self.embed_dims, depth = self.arch['embed_dims'], self.arch['num_layers']
        self.in_channels = in_channels
        self.interpolate_mode, self.frozen_stages = interpolate_mode, frozen_stages
        self.position = resolve_position(pe_type, pe_joining, pe_norm)
        norm_cfg = dict(type='LN', eps=1e-5)

        self.tokenizer = self._build_tokenizer(in_channels, patch_norm)
        self.patch_size = self.tokenizer.patch_size
        self.grid: Grid = self.grid_of(img_size)
        self.set_outputs(_check_out_type(out_type, self.arch['pooling']), out_indices, depth)
        self.recorded_arguments = {'patch_norm': patch_norm, 'out_type': self.out_type}
        self.add_prefix_tokens({'class_emb': 1} if self.arch['pooling'] == 'cls_token' else {})
        if self.position.absolute is not None and 'std' not in vars(self.position.absolute):
            self.position.absolute.std = 0.2
        self.add_tables(depth)
        self.norm_pre = build_norm_pre(patch_norm, self.embed_dims, norm_cfg['eps'], self.position)

        self.blocks = self.build_blocks(
            CompactLayer,
            dict(qkv_bias=False, attn_drop_rate=attn_drop_rate),
            drop_path_rate=drop_path_rate,
            norm_cfg=norm_cfg,
            with_cp=with_cp,
        )
        self.norm = build_norm(norm_cfg, self.embed_dims)
        # outputs of another form would leave it without a gradient
        self.attention_pool = nn.Linear(self.embed_dims, 1) if self.out_type == 'sequence_pool' else None
        self.apply(self._init)
        self.complete()

    def _build_tokenizer(self, in_channels: int, patch_norm: str) -> nn.Module:
        options = dict(self.arch['tokenizer'])
        kind = options.pop('type')
        if kind == 'patch':
            options['patch_norm'] = patch_norm
        elif patch_norm != 'none':
            raise ConfigError(
                f'patch_norm={patch_norm!r} norms the raw values of a patch and its token, but '
                "CCT's convolutions overlap and have no patches; leave patch_norm='none', or "
                'choose an arch of ViT-Lite or CVT'
            )
        return TOKENIZERS[kind](in_channels, self.embed_dims, **options)

    @torch.no_grad()
    def _init(self, module: nn.Module) -> None:
        init_linear(module)
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        elif module is self and self.num_prefix:
            nn.init.zeros_(self.class_emb)

    def embed(self, x: Tensor) -> tuple[Tensor, Stream, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), its PE, and the patches' grid."""
        x, hw = self.tokenizer(x)  # (B, N, D)
        x, pe = self.add_position(x, hw)  # (B, P + N, D)
        return (x if self.norm_pre is None else self.norm_pre(x)), pe, hw

    def absent_parts(self) -> tuple[str, ...]:
        """Return the pooling's weights where this model has none."""
        return super().absent_parts() + (() if self.attention_pool else ('attention_pool.',))

    def format(self, x: Tensor, hw: Grid) -> Tensor | tuple[Tensor, ...]:
        """Return tokens (B, P + N, D) of a layer in the form that ``out_type`` says."""
        if self.out_type != 'sequence_pool':
            return super().format(x, hw)
        weights = self.attention_pool(x).softmax(dim=1)  # (B, N, 1)
        return (weights.mT @ x).squeeze(1)


def _resolve_arch(arch: str | dict) -> dict:
    """Return widths, depth, ``tokenizer`` and ``pooling`` of a name or a dict."""
    arch = resolve_arch(arch, ARCHS)
    require_choice('pooling', arch['pooling'], POOLINGS, 'arch: ')
    if arch['tokenizer'].get('type') not in TOKENIZERS:
        raise ConfigError(
            "arch: tokenizer must be dict(type='patch', patch_size=P) or dict(type='conv', "
            f'kernel_size=K, num_convs=N), not {dict(arch["tokenizer"])}'
        )
    return arch


def _check_out_type(out_type: str | None, pooling: str) -> str:
    """Return the form of the outputs; None is the arch's own pooling."""
    other = next(name for name in POOLINGS if name != pooling)
    if out_type == other:
        raise ConfigError(
            f"out_type={other!r} needs an arch with pooling={other!r}, this one's is {pooling!r}; "
            f'choose one of: {pooling}, featmap, avg_featmap, raw'
        )
    return out_type or pooling
