"""Vision Transformer (DeiT layout) with a choice of position encodings, their joining (LaPE) and Dual PatchNorm."""

from collections.abc import Sequence

from mmcv.cnn import build_norm_layer
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.base.archs import name_models, resolve_arch
from mmlape.models.grid import Grid, ceil_div
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.norm_placement import resolve_norm_placement
from mmlape.models.layers.patch_embed import PatchEmbed
from mmlape.models.layers.transformer_layer import TransformerEncoderLayer
from mmlape.models.position import PositionType, resolve_position
from mmlape.models.vit import options as vit_options
from mmlape.models.vit.checkpoint import ViTCheckpoints
from mmlape.registry import MODELS


@MODELS.register_module()
class VisionTransformer(ViTCheckpoints):
    """Plain ViT; the default arguments are DeiT's, ``pe_joining='lape'`` makes it LaPE's.

    Images of any size of at least one patch work: sides are padded with zeros on the right and the bottom to complete
    patches, so a feature map has ``ceil(side / patch_size)`` cells a side, and an absolute PE is resized to that grid
    once per forward. Parameter names are those of DeiT and timm, with LaPE's ``blocks.N.pe_norm`` (``pos_embed0`` ...
    for 'unshared') and ViT-Adapter's ``gamma1`` / ``gamma2``. The arguments follow mmpretrain's ``VisionTransformer``.

    Args:
        arch: 'deit-tiny', 'deit-small', 'deit-base', or a dict with ``embed_dims``, ``num_layers``, ``num_heads`` and
            ``feedforward_channels``.
        img_size: Side in pixels, or (height, width), that the PE tables are made for.
        patch_size: Side of a patch in pixels.
        in_channels: Channels of the images.
        out_indices: Layers to return; negative ones count from the end.
        out_type: 'cls_token' (B, D); 'raw' all tokens (B, N, D); 'featmap' (B, D, rows, columns); 'avg_featmap', the
            mean of the patch tokens (B, D).
        with_cls_token: Whether a class token runs along.
        num_registers: Trainable tokens after the class token (Darcet et al., ICLR 2024).
        with_prefix_pe: Whether class token and registers have rows in the PE tables. big_vision's and DeiT III's have
            none; where layers join the PE, a token without a row has one of zeros.
        qkv_bias: Whether the qkv projection has a bias.
        pe_type: 'learnable', 'sincos1d', 'sincos2d', 'rpe', 'irpe', 'rope', 'none' or another kind in
            ``POSITION_ENCODINGS`` (docs/position.md lists them); a dict with ``type`` and arguments; or a list of
            those with at most one absolute kind.
        pe_joining: How the absolute PE meets the tokens: 'default', 'shared', 'unshared', 'lape', 'lape-shared' or
            another name in ``JOININGS``; see ``mmlape.models.position.joining``.
        pe_norm: What norms the PE in 'lape-shared' and 'lape' (LaPE, Table 8): 'identity', 'scalar', 'channel',
            'affine', 'norm', 'scalar-norm', 'channel-norm' or 'layernorm'.
        patch_norm: 'none', 'dual', or an ablation of DPN's Table 6: 'pre', 'post', 'post-posemb', 'learnable-only',
            'no-learnable', 'rms'; 'pre-post-posemb' is open_clip's ``input_patchnorm``.
        window_attn: Whether attention is windowed; one value or one per layer.
        window_size: Side of a window in tokens; one value or one per layer.
        layer_scale_init_value: Initial LayerScale gammas; 0 means no LayerScale.
        drop_rate: Dropout of embeddings, projections and FFN.
        attn_drop_rate: Dropout of attention weights.
        drop_path_rate: Stochastic depth of the last layer; it grows linearly from 0.
        final_norm: Whether the last layer's output is normed.
        norm_cfg: Of the norms; LayerNorm with eps 1e-6 by default.
        norm_placement: Where each layer has norms: 'pre', 'post' or 'both', on the sum; 'normformer', 'sub-ln'; or a
            dict such as ``dict(attn='post', ffn='pre', on='branch')``; see ``mmlape.models.layers.norm_placement``.
        act_cfg: Activation of the FFN; the exact GELU by default.
        interpolate_mode: Of PE resizing, as in ``torch.nn.functional.interpolate``; 'bilinear-corners', with the
            corners aligned, is big_vision's; 'tile' repeats the PE, for windows as large as the grid that it was
            trained on (arXiv 2311.05613).
        with_cp: Recompute activations in the backward pass to save memory.
        frozen_stages: -1 trains everything, 0 freezes the embeddings, k the first k layers too.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` loads through ``mmlape.checkpoint.load_backbone``;
            further keys are passed on to it.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the valid choices.
    """

    model_names = name_models('{}', vit_options.ARCHS)
    paper_name = 'DeiT'

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
        qkv_bias: bool = True,
        pe_type: PositionType = 'learnable',
        pe_joining: str = 'default',
        pe_norm: str = 'layernorm',
        patch_norm: str = 'none',
        window_attn: bool | Sequence[bool] = False,
        window_size: int | Sequence[int | None] = 14,
        layer_scale_init_value: float = 0.0,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        final_norm: bool = True,
        norm_cfg: dict | None = None,
        norm_placement: str | dict = 'pre',
        act_cfg: dict | None = None,
        interpolate_mode: str = 'bicubic',
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.arch = resolve_arch(arch, vit_options.ARCHS)
        self.embed_dims = self.arch['embed_dims']
        self.in_channels, self.patch_size = in_channels, patch_size
        self.grid: Grid = self.grid_of((img_size, img_size) if isinstance(img_size, int) else tuple(img_size))
        self.set_outputs(out_type, out_indices, self.arch['num_layers'])
        if out_type == 'cls_token' and not with_cls_token:
            raise ConfigError("out_type='cls_token' needs with_cls_token=True; or choose 'featmap' or 'avg_featmap'")
        self.pe_type, self.pe_joining = pe_type, pe_joining
        self.interpolate_mode, self.with_prefix_pe = interpolate_mode, with_prefix_pe
        self.frozen_stages = frozen_stages
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        self.position = resolve_position(pe_type, pe_joining, pe_norm)

        eps = norm_cfg.get('eps', 1e-5)
        self.patch_embed = PatchEmbed(in_channels, self.embed_dims, patch_size, patch_norm, eps)
        tokens = dict.fromkeys(self.prefix_tokens, 1) if with_cls_token else {}
        tokens |= {'reg_token': num_registers} if num_registers else {}
        depth = self.arch['num_layers']
        self.add_prefix_tokens(tokens)
        self.add_tables(depth)
        self.norm_pre = self.build_norm_pre(patch_norm, eps)
        self.pos_drop = nn.Dropout(drop_rate)

        windows = vit_options.resolve_windows(window_attn, window_size, depth, self.num_prefix, self.position)
        attention = (self.embed_dims, self.arch['num_heads'], qkv_bias, attn_drop_rate, drop_rate)
        norms = (self.position.pe_norm, norm_cfg, with_cp)
        rates = [drop_path_rate * i / max(1, depth - 1) for i in range(depth)]
        self.placement_of_norms = placement = resolve_norm_placement(norm_placement)
        self.untraced = dict(
            num_heads=self.arch['num_heads'],
            patch_norm=patch_norm,
            norm_cfg={**norm_cfg, 'eps': eps},
            act_cfg=act_cfg or dict(type='GELU'),
            window_attn=[side is not None for side in windows] if any(windows) else False,
            window_size=windows if any(windows) else 14,
            out_type=out_type,
        )
        ffn = (act_cfg, placement)
        self.blocks = self._build_layers(attention, windows, drop_rate, rates, layer_scale_init_value, norms, ffn)
        self.norm = build_norm_layer(norm_cfg, self.embed_dims)[1] if final_norm else None
        self.blocks.apply(self.init_linear)
        placement.scale_initial(self.blocks)
        self.add_encodings()
        self.freeze()

    # building

    def init_weights(self) -> None:
        """Initialise as ``init_cfg`` says; weights for which a placement of norms has a rule keep its values."""
        weights = self.placement_of_norms.scaled(self.blocks)
        values = [weight.clone() for weight in weights]
        super().init_weights()
        if self.load_report is None:
            for weight, value in zip(weights, values):
                weight.copy_(value)

    def _build_layers(self, attention, windows, drop_rate, drop_path_rates, layer_scale, norms, ffn) -> nn.ModuleList:
        return nn.ModuleList(
            TransformerEncoderLayer(
                self.embed_dims,
                MultiheadAttention(*attention, side, self.position.build_inside(), self.slot(i, side)),
                self.position.joining,
                self.arch['feedforward_channels'],
                drop_rate,
                rate,
                layer_scale,
                *norms,
                *ffn,
            )
            for i, (side, rate) in enumerate(zip(windows, drop_path_rates))
        )

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens that the PE tables have rows for, and how many each."""
        return super().table_tokens() if self.with_prefix_pe else {}

    def grid_of(self, size: tuple[int, int]) -> Grid:
        """Return the grid of patches of an image of (height, width) pixels."""
        return tuple(ceil_div(side, self.patch_size) for side in size)

    def tokenize(self, x: Tensor) -> tuple[Tensor, Grid]:
        """Return the patches' tokens (B, N, D) of images (B, C, H, W), and their grid."""
        return self.patch_embed(x)


@MODELS.register_module()
class DistilledVisionTransformer(VisionTransformer):
    """DeiT with a class and a distillation token, each with a row of the PE.

    Arguments are those of ``VisionTransformer``; ``out_type='cls_token'`` returns both tokens, 2 x (B, D).
    """

    model_names = name_models('{}-distilled', vit_options.ARCHS)
    paper_name = 'DeiT'
    prefix_tokens = ('cls_token', 'dist_token')

    def format(self, x: Tensor, hw: Grid) -> Tensor | tuple[Tensor, ...]:
        """Return tokens (B, 2 + N, D) of a layer in the form that ``out_type`` says."""
        return (x[:, 0], x[:, 1]) if self.out_type == 'cls_token' else super().format(x, hw)
