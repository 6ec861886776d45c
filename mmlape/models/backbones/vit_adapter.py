"""ViT-Adapter (arXiv 2205.08534): a plain ViT that exchanges features with a convolutional pyramid.

    x <- x + gamma * MSDA(LN(x), LN(c));  x <- layers(x);  c <- c + MSDA(LN(c), LN(x));  c <- c + ConvFFN(LN(c))

x are the ViT's tokens at stride 16, c the cells of the pyramid at strides 8, 16 and 32, in this order. Parameter names
and numerics are those of the public checkpoints.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from mmcv.cnn.bricks import DropPath
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.errors import ConfigError
from mmlape.models.backbones.vit import VisionTransformer
from mmlape.models.layers.deform_attn import Cells, MSDeformAttn
from mmlape.models.layers.transformer_layer import add_branch
from mmlape.models.position.kinds import Grid, pad_to_multiple, parts
from mmlape.registry import MODELS

STRIDE = 32
"""Sides are padded to a multiple of it inside."""


def _conv_bn_relu(in_channels: int, out_channels: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
    return [conv, nn.SyncBatchNorm(out_channels), nn.ReLU(inplace=True)]


class SpatialPriorModule(nn.Module):
    """A convolutional stem and three stages: images to maps of ``embed_dims`` channels at strides 4, 8, 16, 32."""

    def __init__(self, inplanes: int, embed_dims: int, in_channels: int = 3):
        super().__init__()
        widths = (inplanes, 2 * inplanes, 4 * inplanes, 4 * inplanes)
        self.stem = nn.Sequential(
            *_conv_bn_relu(in_channels, inplanes, 2),
            *_conv_bn_relu(inplanes, inplanes, 1),
            *_conv_bn_relu(inplanes, inplanes, 1),
            nn.MaxPool2d(3, 2, 1),
        )
        self.conv2 = nn.Sequential(*_conv_bn_relu(widths[0], widths[1], 2))
        self.conv3 = nn.Sequential(*_conv_bn_relu(widths[1], widths[2], 2))
        self.conv4 = nn.Sequential(*_conv_bn_relu(widths[2], widths[3], 2))
        self.fc1, self.fc2, self.fc3, self.fc4 = (nn.Conv2d(width, embed_dims, 1) for width in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B, C, H, W) to [(B, D, H/4, W/4), ..., (B, D, H/32, W/32)], channels last in memory."""
        x = channels_last(x)
        maps = []
        for stage, project in zip(
            (self.stem, self.conv2, self.conv3, self.conv4), (self.fc1, self.fc2, self.fc3, self.fc4)
        ):
            x = stage(x)
            maps.append(project(x))
        return maps


def channels_last(x: Tensor) -> Tensor:
    """Lay maps (B, C, H, W) out with channels last in memory, under the strides that such a tensor has.

    A sum of views of tokens is laid out so already, but at batch 1 its batch stride is arbitrary; torch's batch norm
    then takes the layout for another one in its backward, and gradients are wrong without an error.
    """
    _, channels, height, width = x.shape
    if x.stride() == (height * width * channels, 1, width * channels, channels):
        return x
    return x.clone(memory_format=torch.channels_last)


def split_maps(x: Tensor, shapes: Sequence[Grid]) -> list[Tensor]:
    """Cells (B, S, C) of maps ``shapes`` to views of them as maps (B, C, rows, columns)."""
    parts = x.transpose(1, 2).split([rows * columns for rows, columns in shapes], dim=-1)
    return [part.unflatten(-1, shape) for part, shape in zip(parts, shapes)]


class DWConv(nn.Module):
    """One depthwise 3x3 convolution that serves every map of the pyramid."""

    def __init__(self, channels: int):
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x: Tensor, shapes: Sequence[Grid]) -> Tensor:
        """(B, S, C) cells of maps ``shapes`` to the same."""
        out = [self.dwconv(level).flatten(2).transpose(1, 2) for level in split_maps(x, shapes)]
        return torch.cat(out, dim=1)


class ConvFFN(nn.Module):
    """Feed-forward network with the depthwise convolution between its first map and the GELU."""

    def __init__(self, embed_dims: int, hidden_dims: int):
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.dwconv = DWConv(hidden_dims)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor, shapes: Sequence[Grid]) -> Tensor:
        return self.fc2(self.act(self.dwconv(self.fc1(x), shapes)))


class DeformableExchange(nn.Module):
    """What injector and extractor share: queries read features by deformable attention, each normed before."""

    def __init__(self, embed_dims: int, n_levels: int, num_heads: int, n_points: int, ratio: float, norm_cfg: dict):
        super().__init__()
        self.query_norm = build_norm_layer(norm_cfg, embed_dims)[1]
        self.feat_norm = build_norm_layer(norm_cfg, embed_dims)[1]
        self.attn = MSDeformAttn(embed_dims, n_levels, num_heads, n_points, ratio)

    def read(self, query: Tensor, query_cells: Cells, feat: Tensor, feat_cells: Cells) -> Tensor:
        return self.attn(self.query_norm(query), query_cells, self.feat_norm(feat), feat_cells)


class Injector(DeformableExchange):
    """ViT tokens read the pyramid; ``gamma`` scales what they add, per channel."""

    def __init__(self, *args, init_values: float = 0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.gamma = nn.Parameter(torch.full((self.query_norm.normalized_shape[0],), float(init_values)))

    def forward(self, x: Tensor, x_cells: Cells, c: Tensor, c_cells: Cells) -> Tensor:
        return add_branch(x, self.read(x, x_cells, c, c_cells), self.gamma)


class Extractor(DeformableExchange):
    """The pyramid reads the ViT tokens; then, with ``cffn_ratio``, its ConvFFN, whose branch alone is dropped."""

    def __init__(self, embed_dims: int, *args, cffn_ratio: float | None = 0.25, drop_path: float = 0.0, **kwargs):
        super().__init__(embed_dims, *args, **kwargs)
        self.ffn = None
        if cffn_ratio is not None:
            self.ffn = ConvFFN(embed_dims, int(embed_dims * cffn_ratio))
            self.ffn_norm = build_norm_layer(kwargs['norm_cfg'], embed_dims)[1]
            self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, c: Tensor, c_cells: Cells, x: Tensor, x_cells: Cells) -> Tensor:
        c = c + self.read(c, c_cells, x, x_cells)
        if self.ffn is not None:
            c = c + self.drop_path(self.ffn(self.ffn_norm(c), c_cells.shapes))
        return c


class InteractionBlock(nn.Module):
    """Injector before, extractor after a range of the ViT's layers, with two extra extractors after the last range."""

    def __init__(
        self, embed_dims: int, shared: dict, init_values: float, ffn: dict, num_extra: int = 0, with_cp: bool = False
    ):
        super().__init__()
        self.injector = Injector(embed_dims, n_levels=3, init_values=init_values, **shared)
        self.extractor = Extractor(embed_dims, n_levels=1, **ffn, **shared)
        extra = [Extractor(embed_dims, n_levels=1, **ffn, **shared) for _ in range(num_extra)]
        self.extra_extractors = nn.ModuleList(extra) if extra else None
        self.with_cp = with_cp

    def inject(self, x: Tensor, x_cells: Cells, c: Tensor, c_cells: Cells) -> Tensor:
        """ViT tokens (B, N, D) after reading the pyramid (B, S, D)."""
        return self._run(self.injector, x, x_cells, c, c_cells)

    def extract(self, c: Tensor, c_cells: Cells, x: Tensor, x_cells: Cells) -> Tensor:
        """The pyramid (B, S, D) after reading the ViT tokens (B, N, D)."""
        for extractor in (self.extractor, *(self.extra_extractors or ())):
            c = self._run(extractor, c, c_cells, x, x_cells)
        return c

    def _run(self, module: nn.Module, *args) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(module, *args, use_reentrant=False)
        return module(*args)


@MODELS.register_module()
class ViTAdapter(VisionTransformer):
    """ViT-Adapter over the same ViT: any joining, PE and patch norm of ``VisionTransformer``.

    Images of any size of at least one patch work: sides are padded with zeros on the right and the bottom to a
    multiple of 32 inside, and each map is cropped back to ``ceil(side / stride)``.

    Args:
        arch, img_size, ...: as in ``VisionTransformer``. There is no class token, but a PE table keeps the row that
            a checkpoint has for it; ``layer_scale_init_value`` is 1 and there is no final norm, as in the official
            code. ``patch_size`` is 16.
        conv_inplane: width of the convolutional stem.
        n_points: places that deformable attention samples per head and level.
        deform_num_heads: its heads.
        init_values: initial gamma of the injectors.
        interaction_indexes: first and last layer of each interaction; None splits the layers into four.
        with_cffn: whether extractors have a ConvFFN.
        cffn_ratio: its width relative to ``embed_dims``.
        deform_ratio: width of the deformable attention's values relative to ``embed_dims``.
        add_vit_feature: whether the ViT's own features are added to the maps.
        use_extra_extractor: whether two more extractors follow the last one.
        vit_feature_source: which ViT features are added: 'last' (all four maps from the last layer, as in the public
            detection code) or 'interaction' (map k from the tokens after interaction k, as in the segmentation code).

    Raises:
        ConfigError: for unknown names and for combinations that cannot work; the message has the valid choices.
    """

    def __init__(
        self,
        arch: str | dict = 'deit-base',
        img_size: int | tuple[int, int] = 224,
        conv_inplane: int = 64,
        n_points: int = 4,
        deform_num_heads: int = 6,
        init_values: float = 0.0,
        interaction_indexes: Sequence[Sequence[int]] | None = None,
        with_cffn: bool = True,
        cffn_ratio: float = 0.25,
        deform_ratio: float = 1.0,
        add_vit_feature: bool = True,
        use_extra_extractor: bool = True,
        vit_feature_source: str = 'last',
        layer_scale_init_value: float = 1.0,
        **kwargs,
    ):
        for key, only in (('with_cls_token', False), ('final_norm', False), ('patch_size', 16)):
            if kwargs.setdefault(key, only) != only:
                raise ConfigError(f'ViTAdapter works with {key}={only!r} only, not {kwargs[key]!r}')
        kwargs.setdefault('out_type', 'featmap')
        super().__init__(arch, img_size, layer_scale_init_value=layer_scale_init_value, **kwargs)
        dims = self.embed_dims
        self.ranges = self._resolve_interactions(interaction_indexes)
        self._check_adapter(vit_feature_source, deform_num_heads, deform_ratio)
        self.vit_feature_source = vit_feature_source if add_vit_feature else None
        self.level_embed = nn.Parameter(torch.randn(3, dims))
        self.spm = SpatialPriorModule(conv_inplane, dims, kwargs.get('in_channels', 3))
        norm_cfg = kwargs.get('norm_cfg') or dict(type='LN', eps=1e-6)
        shared = dict(num_heads=deform_num_heads, n_points=n_points, ratio=deform_ratio, norm_cfg=norm_cfg)
        ffn = dict(cffn_ratio=cffn_ratio if with_cffn else None, drop_path=kwargs.get('drop_path_rate', 0.0))
        last = len(self.ranges) - 1
        self.interactions = nn.ModuleList(
            InteractionBlock(
                dims, shared, init_values, ffn, 2 * (use_extra_extractor and i == last), kwargs.get('with_cp', False)
            )
            for i in range(len(self.ranges))
        )
        self.up = nn.ConvTranspose2d(dims, dims, 2, 2)
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.SyncBatchNorm(dims) for _ in range(4))
        self._init_adapter()

    def _pe_prefix(self) -> int:
        return 1

    def _resolve_interactions(self, indexes) -> list[tuple[int, int]]:
        """Layer ranges [start, stop) from pairs of first and last layer."""
        if indexes is None:
            bounds = [round(i * self.num_layers / 4) for i in range(5)]
            return list(zip(bounds, bounds[1:]))
        ranges = [(pair[0], pair[-1] + 1) for pair in indexes]
        starts, stops = zip(*ranges)
        if starts != (0, *stops[:-1]) or stops[-1] != self.num_layers or any(a >= b for a, b in ranges):
            raise ConfigError(
                f'interaction_indexes={indexes} must cover the {self.num_layers} layers in order, without gaps'
            )
        return ranges

    def _check_adapter(self, source: str, num_heads: int, ratio: float) -> None:
        if source not in ('last', 'interaction'):
            raise ConfigError(f'unknown vit_feature_source={source!r}; choose one of: last, interaction')
        if source == 'interaction' and len(self.ranges) != 4:
            raise ConfigError(f"vit_feature_source='interaction' needs four interactions, not {len(self.ranges)}")
        width = int(self.embed_dims * ratio)
        if width % num_heads:
            raise ConfigError(f'embed_dims * deform_ratio = {width} is not a multiple of deform_num_heads={num_heads}')

    def _init_adapter(self) -> None:
        for part in (self.up, self.spm, self.interactions):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    trunc_normal_(module.weight, std=0.02)
                    nn.init.zeros_(module.bias)
                elif isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                    fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
                    nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
        for module in self.interactions.modules():
            if isinstance(module, MSDeformAttn):
                module.reset_parameters()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Extract the pyramid.

        Args:
            x: images (B, C, H, W).

        Returns:
            f1, f2, f3, f4: (B, D, ceil(H / s), ceil(W / s)) for the strides s = 4, 8, 16, 32.

        Raises:
            ValueError: if a side of the images is smaller than a patch.
        """
        height, width = x.shape[-2:]
        if min(height, width) < self.patch_size:
            raise ValueError(f'an image of {height}x{width} pixels is smaller than one patch of 16x16')
        x = pad_to_multiple(x, STRIDE)
        c1, *levels = self.spm(x)
        c_cells = Cells.of([(int(level.shape[2]), int(level.shape[3])) for level in levels], x.device)
        flat = [level.flatten(2).transpose(1, 2) + embed for level, embed in zip(levels, self.level_embed)]
        c = torch.cat(flat, dim=1)  # (B, S, D)

        x, pe, hw = self.embed(x)
        x_cells = Cells.of([hw], x.device)
        tokens = []
        for interaction, (start, stop) in zip(self.interactions, self.ranges):
            x = interaction.inject(x, x_cells, c, c_cells)
            x, pe = self.run_layers(x, pe, hw, start, stop)
            c = interaction.extract(c, c_cells, x, x_cells)
            tokens.append(x)

        c2, c3, c4 = split_maps(c, c_cells.shapes)
        maps = [c1 + self.up(channels_last(c2)), c2, c3, c4]
        if self.vit_feature_source:
            maps = self._add_vit_features(maps, tokens, hw)
        norms = (self.norm1, self.norm2, self.norm3, self.norm4)
        outs = []
        for norm, m, stride in zip(norms, maps, (4, 8, 16, 32)):
            out = norm(channels_last(m))[..., : parts(height, stride), : parts(width, stride)]
            outs.append(out.clone(memory_format=torch.contiguous_format))  # not every op of a head knows channels last
        return tuple(outs)

    def _add_vit_features(self, maps: list[Tensor], tokens: list[Tensor], hw: Grid) -> list[Tensor]:
        sources = tokens if self.vit_feature_source == 'interaction' else [tokens[-1]] * 4
        out = []
        for m, source in zip(maps, sources):
            feature = source.transpose(1, 2).unflatten(-1, hw)  # (B, D, rows, columns)
            if feature.shape[-2:] != m.shape[-2:]:
                feature = F.interpolate(feature, m.shape[-2:], mode='bilinear', align_corners=False)
            out.append(m + feature)
        return out
