"""Vision Transformer (DeiT layout) with a choice of position embedding, its joining (LaPE) and Dual PatchNorm."""

from collections.abc import Sequence

import torch
from mmcv.cnn import build_norm_layer
from mmengine.model import BaseModule
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.layers.fold import PECache, must_compute, norm_tensors
from mmlape.models.layers.patch_embed import PATCH_NORMS, PatchEmbed
from mmlape.models.layers.transformer_layer import MultiheadAttention, RelativeAttention, TransformerEncoderLayer
from mmlape.models.position.joining import Stream, resolve_joining
from mmlape.models.position.kinds import ABSOLUTE_PE, Grid, absolute_table, parts, resize_absolute
from mmlape.registry import MODELS


def _arch(embed_dims: int, num_heads: int) -> dict:
    return dict(embed_dims=embed_dims, num_layers=12, num_heads=num_heads, feedforward_channels=4 * embed_dims)


ARCHS = {'deit-tiny': _arch(192, 3), 'deit-small': _arch(384, 6), 'deit-base': _arch(768, 12)}
OUT_TYPES = ('cls_token', 'raw', 'featmap', 'avg_featmap')


def _resolve_arch(arch: str | dict) -> dict:
    keys = set(ARCHS['deit-tiny'])
    if isinstance(arch, str):
        if arch not in ARCHS:
            raise ConfigError(
                f'unknown arch={arch!r}; choose one of: {", ".join(ARCHS)}, or a dict with {sorted(keys)}'
            )
        return ARCHS[arch]
    if set(arch) != keys:
        raise ConfigError(f'arch must have exactly the keys {sorted(keys)}, not {sorted(arch)}')
    if arch['embed_dims'] % arch['num_heads']:
        raise ConfigError(f'arch: embed_dims={arch["embed_dims"]} is not a multiple of num_heads={arch["num_heads"]}')
    return dict(arch)


def _per_layer(key: str, value, num_layers: int) -> list:
    values = list(value) if isinstance(value, Sequence) else [value] * num_layers
    if len(values) != num_layers:
        raise ConfigError(f'{key} has {len(values)} entries for {num_layers} layers')
    return values


@MODELS.register_module()
class VisionTransformer(BaseModule):
    """Plain ViT; the default arguments are DeiT's, ``pe_joining='lape'`` makes it LaPE's.

    Images of any size of at least one patch work: sides are padded with zeros on the right and the bottom to whole
    patches, so a feature map has ``ceil(side / patch_size)`` cells a side, and an absolute PE is resized to that grid
    once per forward. Parameter names are those of DeiT and timm, with LaPE's ``blocks.N.pe_norm`` (``pos_embed0`` ...
    for 'unshared') and ViT-Adapter's ``gamma1`` / ``gamma2``.

    Args:
        arch: 'deit-tiny', 'deit-small', 'deit-base', or a dict with ``embed_dims``, ``num_layers``, ``num_heads`` and
            ``feedforward_channels``.
        img_size: side in pixels, or (height, width), that the PE table is made for.
        out_indices: layers to return; negative ones count from the end.
        out_type: 'cls_token' (B, D); 'raw' all tokens (B, N, D); 'featmap' (B, D, rows, columns); 'avg_featmap', the
            mean of the patch tokens (B, D).
        with_cls_token: whether a class token runs along.
        pe_type: 'learnable', 'sincos1d', 'sincos2d', 'rpe' or 'none'.
        pe_joining: 'default', 'shared', 'unshared', 'lape-shared' or 'lape'; see ``mmlape.models.position.joining``.
        pe_norm: what norms the PE in 'lape-shared' and 'lape' (LaPE, Table 8): 'identity', 'scalar', 'channel',
            'affine', 'norm', 'scalar-norm', 'channel-norm' or 'layernorm'.
        patch_norm: 'none', 'dual', or an ablation of DPN's Table 6: 'pre', 'post', 'post-posemb', 'learnable-only',
            'no-learnable', 'rms'.
        window_attn: whether attention is windowed; one value or one per layer.
        window_size: side of a window in tokens; one value or one per layer.
        layer_scale_init_value: initial LayerScale gammas; 0 means no LayerScale.
        final_norm: whether the last layer's output is normed.
        interpolate_mode: of PE resizing.
        with_cp: recompute activations in the backward pass to save memory.
        frozen_stages: -1 trains everything, 0 freezes the embeddings, k the first k layers besides.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` loads through ``mmlape.checkpoint.load_backbone``;
            further keys are passed on to it.

    Raises:
        ConfigError: for unknown names and for combinations that cannot work; the message has the valid choices.
    """

    prefix_tokens: tuple[str, ...] = ('cls_token',)

    def __init__(
        self,
        arch: str | dict = 'deit-base',
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'cls_token',
        with_cls_token: bool = True,
        qkv_bias: bool = True,
        pe_type: str = 'learnable',
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
        interpolate_mode: str = 'bicubic',
        with_cp: bool = False,
        frozen_stages: int = -1,
        init_cfg: dict | list[dict] | None = None,
    ):
        super().__init__(init_cfg)
        self.arch = _resolve_arch(arch)
        self.embed_dims = self.arch['embed_dims']
        self.num_layers = self.arch['num_layers']
        self.patch_size = patch_size
        self.grid: Grid = tuple(parts(side, patch_size) for side in self._pair(img_size))
        self.out_type, self.out_indices = out_type, self._resolve_out(out_type, out_indices, with_cls_token)
        self.pe_type, self.pe_joining, self.patch_norm = pe_type, pe_joining, patch_norm
        self.interpolate_mode = interpolate_mode
        self.frozen_stages = frozen_stages
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        self.joining = resolve_joining(pe_type, pe_joining, pe_norm)

        eps = norm_cfg.get('eps', 1e-5)
        self.patch_embed = PatchEmbed(in_channels, self.embed_dims, patch_size, patch_norm, eps)
        self.num_prefix = len(self.prefix_tokens) if with_cls_token else 0
        for name in self.prefix_tokens[: self.num_prefix]:
            setattr(self, name, nn.Parameter(trunc_normal_(torch.zeros(1, 1, self.embed_dims), std=0.02)))
        self.pe_prefix = self._pe_prefix()
        self.pe_names = self._add_tables()
        self.norm_pre = self._build_norm_pre(eps)
        self.pos_drop = nn.Dropout(drop_rate)

        windows = self._windows(window_attn, window_size)
        normed = self.joining.with_norm
        drop_paths = [drop_path_rate * i / max(1, self.num_layers - 1) for i in range(self.num_layers)]
        self.blocks = nn.ModuleList(
            TransformerEncoderLayer(
                self.embed_dims,
                self._build_attention(window, normed, qkv_bias, attn_drop_rate, drop_rate),
                self.joining,
                self.arch['feedforward_channels'],
                drop_rate,
                drop_path,
                layer_scale_init_value,
                pe_norm if normed and pe_type in ABSOLUTE_PE else None,
                norm_cfg,
                with_cp,
            )
            for window, drop_path in zip(windows, drop_paths)
        )
        self.norm = build_norm_layer(norm_cfg, self.embed_dims)[1] if final_norm else None
        self.pe_cache = PECache()
        self.blocks.apply(self._init_linear)
        self._freeze()

    # building

    @staticmethod
    def _pair(size: int | Sequence[int]) -> tuple[int, int]:
        return (size, size) if isinstance(size, int) else tuple(size)

    def _resolve_out(self, out_type: str, out_indices: int | Sequence[int], with_cls_token: bool) -> list[int]:
        if out_type not in OUT_TYPES:
            raise ConfigError(f'unknown out_type={out_type!r}; choose one of: {", ".join(OUT_TYPES)}')
        if out_type == 'cls_token' and not with_cls_token:
            raise ConfigError("out_type='cls_token' needs with_cls_token=True; or choose 'featmap' or 'avg_featmap'")
        indices = [out_indices] if isinstance(out_indices, int) else list(out_indices)
        for index in indices:
            if not -self.num_layers <= index < self.num_layers:
                raise ConfigError(f'out_indices: there is no layer {index}, the model has {self.num_layers}')
        return [index % self.num_layers for index in indices]

    def _pe_prefix(self) -> int:
        """Rows that the PE table has before those of the patches."""
        return self.num_prefix

    def _add_tables(self) -> list[str]:
        """Add the absolute PE: a parameter if it is learnable, else a buffer that checkpoints carry as well."""
        if self.pe_type not in ABSOLUTE_PE:
            return []
        per_layer = self.joining.table_per_layer
        names = [f'pos_embed{i}' for i in range(self.num_layers)] if per_layer else ['pos_embed']
        for name in names:
            table = absolute_table(self.pe_type, self.grid, self.embed_dims, self.pe_prefix)
            if self.pe_type == 'learnable':
                self.register_parameter(name, nn.Parameter(table))
            else:
                self.register_buffer(name, table)
        return names

    def _build_norm_pre(self, eps: float) -> nn.Module | None:
        build = PATCH_NORMS[self.patch_norm][2]
        if build is None:
            return None
        if self.pe_type not in ABSOLUTE_PE or self.pe_joining != 'default':
            raise ConfigError(
                "patch_norm='post-posemb' norms tokens + PE, so it needs pe_joining='default' and a pe_type of "
                f'{", ".join(ABSOLUTE_PE)}, not pe_joining={self.pe_joining!r} with pe_type={self.pe_type!r}'
            )
        return build(self.embed_dims, eps=eps)

    def _windows(self, window_attn, window_size) -> list[int | None]:
        windowed = _per_layer('window_attn', window_attn, self.num_layers)
        sizes = _per_layer('window_size', window_size, self.num_layers)
        windows = [size if use else None for use, size in zip(windowed, sizes)]
        if any(use and not size for use, size in zip(windowed, sizes)):
            raise ConfigError('window_size must be a positive number in every layer with window_attn')
        if any(windows) and (self.num_prefix or self.pe_type == 'rpe'):
            raise ConfigError("window_attn needs with_cls_token=False and a pe_type other than 'rpe'")
        return windows

    def _build_attention(self, window, normed, qkv_bias, attn_drop_rate, drop_rate) -> nn.Module:
        args = (self.embed_dims, self.arch['num_heads'], qkv_bias, attn_drop_rate, drop_rate)
        if self.pe_type != 'rpe':
            return MultiheadAttention(*args, window_size=window)
        return RelativeAttention(
            *args, grid=self.grid, num_prefix=self.num_prefix, normed=normed, mode=self.interpolate_mode
        )

    @staticmethod
    def _init_linear(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    # weights

    def init_weights(self) -> None:
        """Load the checkpoint of ``init_cfg``; without one, the weights made by the constructor stay."""
        cfgs = self.init_cfg if isinstance(self.init_cfg, list) else [self.init_cfg or {}]
        if not any(cfg.get('type') == 'Pretrained' for cfg in cfgs):
            super().init_weights()
        elif not self.is_init:
            from mmlape.checkpoint.loading import load_init_cfg

            load_init_cfg(self, cfgs)
            self.is_init = True

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        for name in self.pe_names:
            stored = state_dict.get(prefix + name)
            if stored is not None and stored.ndim == 2:  # the public 1-D sinusoids have no batch axis
                state_dict[prefix + name] = stored[None]
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Depth of a parameter for layer-wise learning rates; a layer's PE norm belongs to its layer.

        Returns:
            The depth (0 for the embeddings, k + 1 for layer k, the number of layers + 1 for what follows), and the
            number of depths.
        """
        name = param_name.removeprefix(prefix)
        depths = self.num_layers + 2
        if name.startswith('blocks.'):
            return int(name.split('.')[1]) + 1, depths
        if name.startswith(('patch_embed.', 'pos_embed', 'norm_pre.', *self.prefix_tokens)):
            return 0, depths
        return depths - 1, depths

    def _freeze(self) -> None:
        if self.frozen_stages < 0:
            return
        own = [*self.prefix_tokens[: self.num_prefix], *self.pe_names]
        for name in own:
            getattr(self, name).requires_grad_(False)
        for module in self._frozen_modules():
            module.requires_grad_(False)

    def _frozen_modules(self) -> list[nn.Module]:
        if self.frozen_stages < 0:
            return []
        embeddings = [module for module in (self.patch_embed, self.norm_pre, self.pos_drop) if module is not None]
        return [*embeddings, *self.blocks[: self.frozen_stages]]

    def train(self, mode: bool = True):
        """Set the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        self.pe_cache.clear()
        for module in self._frozen_modules():
            module.eval()
        return self

    # running

    def position_stream(self, hw: Grid, num_prefix: int) -> Stream:
        """The PE for a grid, resized once: (1, num_prefix + N, D), a tuple of those, or None.

        Args:
            hw: grid of the patch tokens.
            num_prefix: how many of the table's prefix rows are wanted, 0 or all.
        """
        tables = [
            resize_absolute(getattr(self, name), self.grid, hw, self.pe_prefix, self.interpolate_mode)
            for name in self.pe_names
        ]
        if num_prefix < self.pe_prefix:
            tables = [table[:, self.pe_prefix :] for table in tables]
        if self.joining.table_per_layer:
            return tuple(tables)
        return tables[0] if tables else None

    def _stream(self, hw: Grid) -> Stream:
        """The PE for a forward: in inference folded, and kept for the next one (see ``mmlape.models.layers.fold``)."""

        def compute() -> Stream:
            return self.position_stream(hw, self.num_prefix)

        if self.training or torch.is_grad_enabled() or not self.pe_names:
            return compute()
        tables = [getattr(self, name) for name in self.pe_names]
        norms = [block.pe_norm for block in self.blocks] if self.joining.with_norm else []
        tensors = None if must_compute(tables[0].device) else norm_tensors(norms)
        if tensors is None:
            return compute()
        key = (hw, self.interpolate_mode)
        return self.pe_cache.get(key, [*tables, *tensors], lambda: self.joining.fold(compute(), norms))

    def embed(self, x: Tensor) -> tuple[Tensor, Stream, Grid]:
        """Images (B, C, H, W) to the first layer's tokens (B, N, D), its PE, and the grid."""
        x, hw = self.patch_embed(x)
        prefix = [getattr(self, name).expand(len(x), -1, -1) for name in self.prefix_tokens[: self.num_prefix]]
        x = torch.cat((*prefix, x), dim=1) if prefix else x
        pe = self._stream(hw)
        x = self.joining.enter(x, pe)
        if self.norm_pre is not None:
            x = self.norm_pre(x)
        return self.pos_drop(x), pe, hw

    def run_layers(self, x: Tensor, pe: Stream, hw: Grid, start: int, stop: int) -> tuple[Tensor, Stream]:
        """Run layers ``start`` to ``stop`` (exclusive) on tokens (B, N, D)."""
        for block in self.blocks[start:stop]:
            x, pe = block(x, pe, hw)
        return x, pe

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Extract features.

        Args:
            x: images (B, C, H, W).

        Returns:
            One entry per out index, of the form that ``out_type`` says; the final norm applies to the last layer.

        Raises:
            ValueError: if a side of the images is smaller than a patch.
        """
        x, pe, hw = self.embed(x)
        outs, start = [], 0
        for index in sorted(set(self.out_indices)):
            x, pe = self.run_layers(x, pe, hw, start, index + 1)
            start = index + 1
            last = index == self.num_layers - 1
            outs.append(self._format(self.norm(x) if last and self.norm is not None else x, hw))
        by_index = dict(zip(sorted(set(self.out_indices)), outs))
        return tuple(by_index[index] for index in self.out_indices)

    def _format(self, x: Tensor, hw: Grid):
        if self.out_type == 'raw':
            return x
        if self.out_type == 'cls_token':
            return x[:, 0]
        patches = x[:, self.num_prefix :]  # (B, N, D)
        if self.out_type == 'avg_featmap':
            return patches.mean(dim=1)
        return (
            patches.transpose(1, 2).unflatten(2, hw).clone(memory_format=torch.contiguous_format)
        )  # (B, D, rows, columns)


@MODELS.register_module()
class DistilledVisionTransformer(VisionTransformer):
    """DeiT with a class and a distillation token, each with a row of the PE.

    Arguments are those of ``VisionTransformer``; ``out_type='cls_token'`` returns both tokens, 2 x (B, D).
    """

    prefix_tokens = ('cls_token', 'dist_token')

    def _format(self, x: Tensor, hw: Grid):
        return (x[:, 0], x[:, 1]) if self.out_type == 'cls_token' else super()._format(x, hw)
