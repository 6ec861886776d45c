"""Vision Transformer (DeiT layout) with a choice of position encodings, their joining (LaPE) and Dual PatchNorm.

Public bases are named as what each has otherwise than DeiT, in arguments of this ViT, those of ViT-Adapter's
repository first.

AugReg (TMLR 2022) is DeiT's architecture, B and L of 384 pixels, as the files are that ViT-Adapter names, and Ti of
224; BEiT and BEiTv2 (ICLR 2022; arXiv 2208.06366) have a bias of relative positions, LayerScale and no bias of keys;
Uni-Perceiver (CVPR 2022) norms patches + PE. The public adapters start gammas of BEiT at 1e-6 and those of
Uni-Perceiver at 0, which released weights replace.

DINOv2 (arXiv 2304.07193) has patches of 14 pixels and LayerScale, with registers another way to resize its PE; DINOv3
(arXiv 2508.10104) has rotary encodings, registers and no bias of keys; CLIP (ICML 2021) norms patches + PE, OpenAI's
own by a GELU of its own; the PE of big_vision's ViTs has no row for the class token, and their GELU is the tanh form;
SigLIP (ICCV 2023) has the same GELU and no class token.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.lazy import Lazy
from mmlape.models.base.isotropic import TOKENS, IsotropicBackbone, build_norm_pre, require_cls_token
from mmlape.models.grid import Grid
from mmlape.models.layers.norm_placement import resolve_norm_placement
from mmlape.models.layers.patch_embed import PatchEmbed
from mmlape.models.layers.transformer_layer import FFN_TYPES, TransformerEncoderLayer
from mmlape.models.model_names import name_models, resolve_arch, with_variants
from mmlape.models.named_layers import build_norm, init_linear
from mmlape.models.position import Position, PositionType, Stream, resolve_position


def _arch(embed_dims: int, num_heads: int, num_layers: int = 12) -> dict:
    return dict(embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads, feedforward_channels=4 * embed_dims)


DEIT = {'deit-tiny': _arch(192, 3), 'deit-small': _arch(384, 6), 'deit-base': _arch(768, 12)}
ARCHS = {**DEIT, 'vit-large': _arch(1024, 16, 24)}
AUGREG = dict(img_size=384)
BIG_VISION = dict(with_prefix_pe=False, act_cfg=dict(type='GELU', approximate='tanh'))
CLIP = dict(patch_norm='post-posemb', norm_cfg=dict(type='LN', eps=1e-5))
DINOV2 = dict(patch_size=14, img_size=518, layer_scale_init_value=1e-5, interpolate_mode='bicubic-offset')
DINOV2_REGISTERS = {'reg4': dict(num_registers=4, interpolate_mode='bicubic-antialias')}
DINOV3 = dict(
    num_registers=4,
    pe_type=dict(type='rope', coordinates='normalised', pairs='half'),
    qkv_bias='qv',
    layer_scale_init_value=1e-5,
    norm_cfg=dict(type='LN', eps=1e-5),
)
SIGLIP = dict(with_cls_token=False, out_type='avg_featmap', act_cfg=dict(type='GELU', approximate='tanh'))
BEIT = dict(pe_type='beit', qkv_bias='qv', window_padding='before-qkv', layer_scale_init_value=1e-6)
UNI_PERCEIVER = dict(
    with_prefix_pe=False,
    patch_norm='post-posemb',
    norm_cfg=dict(type='LN', eps=1e-5),
    window_padding='before-qkv',
    layer_scale_init_value=1e-6,
)
BEIT_VARIANTS = {'lape': dict(pe_type=['learnable', 'beit'], pe_joining='lape'), 'dpn': dict(patch_norm='dual')}
"""What the suffixes of a BEiT's name stand for: LaPE's table stands beside the bias."""
_ARCHS = {'tiny': 'deit-tiny', 'small': 'deit-small', 'base': 'deit-base', 'large': 'vit-large'}
BEIT_OUTPUT = dict(out_type='avg_featmap', final_norm=False)
"""What BEiT's classifiers read, through a norm of the head."""
UNI_PERCEIVER_OUTPUT = dict(with_cls_token=False, out_type='featmap', final_norm=False)


def sizes(name: str, options: dict, *of: str) -> dict[str, dict]:
    """Return the arguments of a base by name and size: 'beit-large' of 'beit', ``BEIT`` and 'large'."""
    return {f'{name}-{size}': dict(arch=_ARCHS[size], **options) for size in of}


def patched(name: str, patch_size: int, options: dict, *of: str) -> dict[str, dict]:
    """Return the same for a side of the patches: 'vit-base-p32' of 'vit', 32 and 'base'."""
    bases = sizes(name, dict(options, patch_size=patch_size), *of)
    return {f'{key}-p{patch_size}': arguments for key, arguments in bases.items()}


def _per_layer(key: str, value, num_layers: int) -> list:
    values = list(value) if isinstance(value, Sequence) else [value] * num_layers
    if len(values) != num_layers:
        raise ConfigError(f'{key} has {len(values)} entries for {num_layers} layers')
    return values


def resolve_windows(
    window_attn: bool | Sequence[bool],
    window_size: int | Sequence[int | None],
    num_layers: int,
    num_prefix: int,
    position: Position,
) -> list[int | None]:
    """Return the side of each layer's windows; None for global attention."""
    windowed = _per_layer('window_attn', window_attn, num_layers)
    sizes = _per_layer('window_size', window_size, num_layers)
    unfit = position.unfit_for_windows()
    if any(windowed) and (num_prefix or unfit):
        other = f' and a pe_type without {", ".join(unfit)}' if unfit else ''
        raise ConfigError(f'window_attn needs with_cls_token=False, num_registers=0{other}')
    return [size if use else None for use, size in zip(windowed, sizes)]


class VisionTransformer(IsotropicBackbone):
    """Plain ViT; the default arguments are DeiT's, ``pe_joining='lape'`` makes it LaPE's.

    Images of any size of at least one patch work: sides are padded with zeros on the right and the
    bottom to complete patches, so a feature map has ``ceil(side / patch_size)`` cells a side, and
    an absolute PE is resized to that grid once per forward. Parameter names are those of DeiT and
    timm, with LaPE's ``blocks.N.pe_norm`` (``pos_embed0`` ... for 'unshared') and ViT-Adapter's
    ``gamma1`` / ``gamma2``. The arguments follow mmpretrain's ``VisionTransformer``.

    Args:
        arch: 'deit-tiny', 'deit-small', 'deit-base', 'vit-large', or a dict with ``embed_dims``,
            ``num_layers``, ``num_heads`` and ``feedforward_channels``.
        img_size: Side in pixels, or (height, width), that the PE tables are made for.
        patch_size: Side of a patch in pixels.
        in_channels: Channels of the images.
        out_indices: Layers to return; negative ones count from the end.
        out_type: 'cls_token' (B, D); 'raw' all tokens (B, N, D); 'featmap' (B, D, rows, columns);
            'avg_featmap', the mean of the patch tokens (B, D).
        with_cls_token: Whether a class token runs along.
        num_registers: Trainable tokens after the class token (Darcet et al., ICLR 2024).
        with_prefix_pe: Whether class token and registers have rows in the PE tables. big_vision's
            and DeiT III's have none; a token without a row gets nothing, in any layer.
        qkv_bias: Whether the qkv projection has a bias; 'qv' is BEiT's, of queries and values.
        pe_type: 'learnable', 'sincos1d', 'sincos2d', 'rpe', 'beit', 'irpe', 'rope', 'none' or
            another kind in ``POSITION_ENCODINGS`` (docs/reference/position.md lists them); a dict
            with ``type`` and arguments; or a list of those with at most one absolute kind.
        pe_joining: How the absolute PE meets the tokens: 'default', 'shared', 'unshared', 'lape',
            'lape-shared', 'pvg', 'mpvg' or another name in ``JOININGS``; see
            ``mmlape.models.position.joining``. 'pvg' and 'mpvg' need ``with_cls_token=False`` and
            no registers; without ``final_norm``, 'mpvg' joins as 'pvg' does.
        pe_norm: What norms the PE in 'lape', 'lape-shared', 'pvg' and 'mpvg' (LaPE, Table 8):
            'identity', 'scalar', 'channel', 'affine', 'norm', 'scalar-norm', 'channel-norm' or
            'layernorm'.
        patch_norm: 'none', 'dual', or an ablation of DPN's Table 6: 'pre', 'post', 'post-posemb',
            'learnable-only', 'no-learnable', 'rms'; 'pre-post-posemb' is open_clip's
            ``input_patchnorm``.
        window_attn: Whether attention is windowed; one value or one per layer.
        window_size: Side of a window in tokens; one value or one per layer.
        window_padding: What fills a grid to complete windows: zeros after the qkv projection,
            'after-qkv', or before it, 'before-qkv', as in the public adapters over BEiT and
            Uni-Perceiver.
        layer_scale_init_value: Initial LayerScale gammas; 0 means no LayerScale.
        drop_rate: Dropout of embeddings, projections and FFN.
        attn_drop_rate: Dropout of attention weights.
        drop_path_rate: Stochastic depth of the last layer; it grows linearly from 0.
        final_norm: Whether the last layer's output is normed; 'every' norms that of each returned
            layer, as DINOv2.
        norm_cfg: Of the norms; LayerNorm with eps 1e-6 by default.
        norm_placement: Where each layer has norms: 'pre', 'post' or 'both', on the sum;
            'normformer', 'sub-ln'; or a dict such as ``dict(attn='post', ffn='pre', on='branch')``;
            see ``mmlape.models.layers.norm_placement``.
        act_cfg: Activation of the FFN; the exact GELU by default.
        ffn_type: 'mlp', or 'swiglu', DINOv2 giant's gated FFN.
        patch_padding: Where images are padded to complete patches: at the 'end', or on all sides,
            'center'.
        interpolate_mode: Of PE resizing, as in ``torch.nn.functional.interpolate``;
            'bilinear-corners', with the corners aligned, is big_vision's; 'bicubic-offset' is that
            of DINOv2 without registers, 'bicubic-antialias' timm's; 'tile' repeats the PE, for
            windows as large as the grid that it was trained on (arXiv 2311.05613).
        with_cp: Recompute activations in the backward pass to save memory.
        frozen_stages: -1 trains everything, 0 freezes the embeddings, k the first k layers too.
        remove_position: Takes position out of the patches that a frozen backbone returns:
            ``dict(how='constant', directions=20)``, ``dict(how='ridge', rounds=5)`` or
            ``dict(how='mean')``, see ``mmlape.models.removal``.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` loads through
            ``mmlape.checkpoint.load_backbone``; further keys are passed on to it.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the
            valid choices.
    """

    archs = ARCHS
    checkpoint_adapter = Lazy('mmlape.models.vit.checkpoint', 'OF_VIT')
    model_names = (
        name_models('{}', ARCHS)
        | with_variants(
            sizes('augreg', {}, 'tiny')
            | sizes('augreg', AUGREG, 'base', 'large')
            | patched('augreg', 32, AUGREG, 'small', 'base')
            | patched('vit', 16, BIG_VISION, 'tiny', 'small', 'base')
            | patched('vit', 32, BIG_VISION, 'small', 'base')
        )
        | with_variants(sizes('dinov2', DINOV2, 'small', 'base', 'large'), DINOV2_REGISTERS)
        | sizes('dinov3', DINOV3, 'small', 'base', 'large')
        | patched('siglip', 16, SIGLIP, 'base', 'large')
        | patched('clip', 16, CLIP, 'base')
        | patched('clip', 32, CLIP, 'base')
        | patched('clip', 14, CLIP, 'large')
        | with_variants(sizes('beit', BEIT | BEIT_OUTPUT, 'base', 'large'), BEIT_VARIANTS)
        | sizes('uni-perceiver', UNI_PERCEIVER | UNI_PERCEIVER_OUTPUT, 'base', 'large')
    )
    paper_name = 'DeiT'
    keeps_class_row = False
    """Whether tables have the class row of the pretraining, which a model without that token has as well."""
    without_prefix = "set with_cls_token=False, num_registers=0 and out_type='avg_featmap' or 'featmap'"

    def __init__(
        self,
        arch: str | dict = 'deit-base',
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'cls_token',
        with_cls_token: bool = True,
        num_registers: int = 0,
        with_prefix_pe: bool = True,
        qkv_bias: bool | str = True,
        pe_type: PositionType = 'learnable',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        patch_norm: str = 'none',
        window_attn: bool | Sequence[bool] = False,
        window_size: int | Sequence[int | None] = 14,
        window_padding: str = 'after-qkv',
        layer_scale_init_value: float = 0.0,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        final_norm: bool | str = True,
        norm_cfg: dict | None = None,
        norm_placement: str | dict = 'pre',
        act_cfg: dict | None = None,
        ffn_type: str = 'mlp',
        patch_padding: str = 'end',
        interpolate_mode: str = 'bicubic',
        with_cp: bool = False,
        frozen_stages: int = -1,
        remove_position: dict | None = None,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.register_arguments(locals())
        self.arch = resolve_arch(arch, ARCHS)
        self.embed_dims, depth = self.arch['embed_dims'], self.arch['num_layers']
        if isinstance(patch_size, tuple | list):
            raise ConfigError(
                f'patch_size={patch_size!r}: patches are squares, so it is one side in pixels, such as 16'
            )
        self.in_channels, self.patch_size = in_channels, patch_size
        self.grid: Grid = self.grid_of(img_size)
        self.set_outputs(out_type, out_indices, depth)
        require_cls_token(out_type, with_cls_token)
        self.pe_type, self.pe_joining = pe_type, pe_joining
        self.interpolate_mode, self.with_prefix_pe = interpolate_mode, with_prefix_pe
        self.frozen_stages = frozen_stages
        require_choice('ffn_type', ffn_type, FFN_TYPES)
        require_choice('patch_padding', patch_padding, ('end', 'center'))
        require_choice('final_norm', final_norm, (True, False, 'every'))
        self.norm_every = final_norm == 'every'
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        self.position = resolve_position(pe_type, pe_joining, pe_norm)

        eps = norm_cfg.get('eps', 1e-5)
        self.patch_embed = PatchEmbed(
            in_channels, self.embed_dims, patch_size, patch_norm, eps, patch_padding == 'center'
        )
        tokens = dict.fromkeys(self.prefix_tokens, 1) if with_cls_token else {}
        tokens |= {'reg_token': num_registers} if num_registers else {}
        self.add_prefix_tokens(tokens)
        self.add_tables(depth)  # here, since initial values by seed depend on the order
        self.norm_pre = build_norm_pre(patch_norm, self.embed_dims, eps, self.position)
        self.pos_drop = nn.Dropout(drop_rate)

        windows = resolve_windows(window_attn, window_size, depth, self.num_prefix, self.position)
        self.norm_placement = resolve_norm_placement(norm_placement)
        if ffn_type != 'mlp' and self.norm_placement.scaled_init:
            raise ConfigError(f"norm_placement={norm_placement!r} scales the initial weights of ffn_type='mlp' only")
        attn = dict(qkv_bias=qkv_bias, window_padding=window_padding)
        self.blocks = self.build_blocks(
            TransformerEncoderLayer,
            dict(attn, attn_drop_rate=attn_drop_rate, proj_drop_rate=drop_rate),
            drop_path_rate=drop_path_rate,
            windows=windows,
            drop_rate=drop_rate,
            layer_scale_init_value=layer_scale_init_value,
            norm_cfg=norm_cfg,
            norm_placement=self.norm_placement,
            act_cfg=act_cfg,
            ffn_type=ffn_type,
            with_cp=with_cp,
        )
        self.norm = build_norm(norm_cfg, self.embed_dims) if final_norm else None
        self.blocks.apply(init_linear)
        self.norm_placement.scale_initial(self.blocks)
        self.recorded_arguments = dict(
            num_heads=self.arch['num_heads'],
            patch_norm=patch_norm,
            norm_cfg={**norm_cfg, 'eps': eps},
            act_cfg=act_cfg or dict(type='GELU'),
            window_attn=[side is not None for side in windows] if any(windows) else False,
            window_size=windows if any(windows) else 14,
            **({'window_padding': window_padding} if any(windows) else {}),
            out_type=out_type,
        )
        self.complete()
        self.add_removal(remove_position, sorted(set(self.out_indices)))

    def embed(self, x: Tensor) -> tuple[Tensor, Stream, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), its PE, and the patches' grid."""
        x, hw = self.patch_embed(x)  # (B, N, D)
        x, pe = self.add_position(x, hw)  # (B, P + N, D)
        if self.norm_pre is not None:
            x = self.norm_pre(x)
        return self.pos_drop(x), pe, hw

    def init_weights(self) -> None:
        """Initialise as ``init_cfg`` says.

        What it draws anew gets the gain of a placement of norms that has one.
        """
        before = [weight.clone() for weight in self.norm_placement.scaled(self.blocks)]
        super().init_weights()
        if self.load_report is None:
            self.norm_placement.scale_initial(self.blocks, before)

    def frozen_modules(self) -> list[nn.Module]:
        """Return the modules that ``frozen_stages`` freezes.

        With all layers, a final norm of every layer too.
        """
        every = self.norm_every and self.frozen_stages == self.num_layers
        norms = [norm for norm in (self.norm, self.pe_norm) if norm is not None]
        return super().frozen_modules() + (norms if every else [])

    def normed(self, x: Tensor, last: bool, pe: Stream) -> Tensor:
        """Return the tokens (B, P + N, D) of a layer that is returned, through the final norm where it applies."""
        return super().normed(x, last or self.norm_every, pe)

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens that the PE tables have rows for, and how many each."""
        if not self.with_prefix_pe or (self.keeps_class_row and self.joining.patches_only):
            return {}
        return {'cls_token': 1} if self.keeps_class_row else super().table_tokens()

    def absent_parts(self) -> tuple[str, ...]:
        """Return the tokens that do not run along, and the final norm if there is none."""
        return super().absent_parts() + tuple(token for token in TOKENS if token not in self.prefix_tokens)


class DistilledVisionTransformer(VisionTransformer):
    """DeiT with a class and a distillation token, each with a row of the PE.

    Arguments are those of ``VisionTransformer``; ``out_type='cls_token'`` returns both tokens, 2 x
    (B, D).
    """

    model_names = name_models('{}-distilled', DEIT)
    paper_name = 'DeiT'
    prefix_tokens = ('cls_token', 'dist_token')

    def format(self, x: Tensor, hw: Grid) -> Tensor | tuple[Tensor, ...]:
        """Return tokens (B, 2 + N, D) of a layer in the form that ``out_type`` says."""
        return (x[:, 0], x[:, 1]) if self.out_type == 'cls_token' else super().format(x, hw)
