"""The adapter of ViT-Adapter (arXiv 2205.08534) over any plain ViT, which it asks for four things only.

    x <- inject(x, c);  x <- layers(x);  c <- extract(c, x)

x are the ViT's patch tokens, c the cells of a convolutional pyramid at strides 8, 16 and 32, in this order.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.adapter.deform_attn import Cells, MSDeformAttn
from mmlape.models.adapter.layers import InteractionBlock, split_maps
from mmlape.models.adapter.spatial_prior import SpatialPriorModule
from mmlape.models.grid import (
    Grid,
    ceil_div,
    channels_last,
    contiguous,
    pad_to_multiple,
    require_patch,
    to_maps,
)

STRIDES = (4, 8, 16, 32)


class PlainViT(Protocol):
    """What the adapter asks of a ViT; ``state`` is whatever the ViT's layers pass on beside the tokens."""

    embed_dims: int
    num_layers: int
    patch_size: int

    def embed(self, x: Tensor) -> tuple[Tensor, Any, Grid]:
        """Return the first layer's tokens (B, P + N, D) of images (B, C, H, W), the state, and the patches' grid."""

    def run_layers(self, x: Tensor, pe: Any, hw: Grid, start: int, stop: int) -> tuple[Tensor, Any]:
        """Run layers ``start`` to ``stop`` (exclusive); return tokens and state."""

    def split_prefix(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split tokens into those before the patches, (B, P, D), and the patches, (B, N, D)."""


class AdapterMixin(nn.Module):
    """The adapter's parts and its forward, for a module that is a ViT or holds one.

    A subclass calls ``build_adapter`` at the end of its constructor; its ViT is ``self.plain_vit``.
    """

    strides = STRIDES

    @property
    def plain_vit(self) -> PlainViT:
        """The ViT below the adapter: by default the module itself."""
        return self

    def build_adapter(
        self,
        conv_inplane: int = 64,
        n_points: int = 4,
        deform_num_heads: int = 6,
        init_values: float = 0.0,
        interaction_indexes: Sequence[Sequence[int]] | None = None,
        cffn_ratio: float | None = 0.25,
        deform_ratio: float = 1.0,
        use_extra_extractor: bool = True,
        vit_feature_source: str | None = 'last',
        in_channels: int = 3,
        drop_path_rate: float = 0.0,
        norm_cfg: dict | None = None,
        with_cp: bool = False,
        with_injectors: bool = True,
    ) -> None:
        """Add the adapter's parts, under their official names; see ``ViTAdapter`` for the arguments.

        Without injectors, the pyramid reads the ViT, which is left as it is.

        Raises:
            ConfigError: If the arguments do not fit the ViT or one another.
        """
        dims = self.plain_vit.embed_dims
        self.ranges = resolve_interactions(interaction_indexes, self.plain_vit.num_layers)
        _check_adapter(vit_feature_source, len(self.ranges), int(dims * deform_ratio), deform_num_heads)
        self.vit_feature_source = vit_feature_source
        self.level_embed = nn.Parameter(torch.randn(3, dims))
        self.spm = SpatialPriorModule(conv_inplane, dims, in_channels)
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        shared = dict(num_heads=deform_num_heads, n_points=n_points, ratio=deform_ratio, norm_cfg=norm_cfg)
        ffn = dict(cffn_ratio=cffn_ratio, drop_path=drop_path_rate)
        last = len(self.ranges) - 1
        self.interactions = nn.ModuleList(
            InteractionBlock(
                dims, shared, init_values, ffn, 2 * (use_extra_extractor and i == last), with_cp, with_injectors
            )
            for i in range(len(self.ranges))
        )
        self.up = nn.ConvTranspose2d(dims, dims, 2, 2)
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.SyncBatchNorm(dims) for _ in range(4))
        self._init_adapter()

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
            x: Images (B, C, H, W).

        Returns:
            f1, f2, f3, f4: (B, D, ceil(H / s), ceil(W / s)) for the strides s = 4, 8, 16, 32.

        Raises:
            DataError: If a side of the images is smaller than a patch.
        """
        height, width = x.shape[-2:]
        vit, side = self.plain_vit, self.plain_vit.patch_size
        require_patch(x, side)
        x = pad_to_multiple(x, math.lcm(STRIDES[-1], side))
        c1, *levels = self.spm(x)
        c_cells = Cells.of([(int(level.shape[2]), int(level.shape[3])) for level in levels], x.device)
        flat = [level.flatten(2).transpose(1, 2) + embed for level, embed in zip(levels, self.level_embed)]
        c = torch.cat(flat, dim=1)  # (B, S, D)

        x, state, hw = vit.embed(x)
        x_cells = Cells.of([hw], x.device)
        features = []
        for interaction, (start, stop) in zip(self.interactions, self.ranges):
            if interaction.injector is not None:
                prefix, patches = vit.split_prefix(x)
                patches = interaction.inject(patches, x_cells, c, c_cells)
                x = torch.cat((prefix, patches), dim=1) if prefix.shape[1] else patches
            x, state = vit.run_layers(x, state, hw, start, stop)
            patches = self.read_patches(x)
            c = interaction.extract(c, c_cells, patches, x_cells)
            features.append(patches)

        c2, c3, c4 = split_maps(c, c_cells.shapes)
        maps = [c1 + self.up(channels_last(c2)), c2, c3, c4]
        if self.vit_feature_source:
            maps = self._add_features(maps, features, hw)
        outs = []
        for norm, m, stride in zip((self.norm1, self.norm2, self.norm3, self.norm4), maps, STRIDES):
            out = norm(channels_last(m))
            if out.requires_grad and not torch.compiler.is_compiling():
                out.register_hook(channels_last)  # gradients of another layout are ten times as slow there
            shape = ceil_div(height, stride), ceil_div(width, stride)
            out = out if out.shape[-2:] == shape else out[..., : shape[0], : shape[1]]
            outs.append(contiguous(out))  # not every op of a head knows channels last
        return tuple(outs)

    def read_patches(self, x: Tensor) -> Tensor:
        """Return the patches (B, N, D) that the pyramid reads of a layer's tokens (B, P + N, D)."""
        return self.plain_vit.split_prefix(x)[1]

    def _add_features(self, maps: list[Tensor], features: list[Tensor], hw: Grid) -> list[Tensor]:
        sources = features if self.vit_feature_source == 'interaction' else [features[-1]] * 4
        out = []
        for m, source in zip(maps, sources):
            feature = channels_last(to_maps(source, hw))  # as the maps are: a sum of two layouts is slow
            if feature.shape[-2:] != m.shape[-2:]:
                feature = F.interpolate(feature, m.shape[-2:], mode='bilinear', align_corners=False)
            out.append(m + feature)
        return out


def infer_options(tensors: dict[str, Tensor], dims: int, defaults: dict) -> dict:
    """Return the arguments of ``AdapterMixin.build_adapter`` that a file tells, where they are not the defaults.

    Args:
        tensors: Of the file.
        dims: Width of the ViT's tokens.
        defaults: Where they are not those of ``build_adapter``.
    """
    first = 'interactions.0.extractor'
    hidden = tensors.get(f'{first}.ffn.fc1.weight')
    found = dict(
        conv_inplane=len(tensors['spm.stem.0.weight']),
        deform_ratio=len(tensors[f'{first}.attn.value_proj.weight']) / dims,
        cffn_ratio=None if hidden is None else len(hidden) / dims,
    )
    defaults = dict(conv_inplane=64, deform_ratio=1.0, cffn_ratio=0.25) | defaults
    return {key: value for key, value in found.items() if defaults[key] != value}


def resolve_interactions(indexes: Sequence[Sequence[int]] | None, num_layers: int) -> list[tuple[int, int]]:
    """Return layer ranges [start, stop) from pairs of first and last layer; None splits the layers into four.

    Raises:
        ConfigError: If the pairs do not cover the layers in order.
    """
    if indexes is None:
        bounds = [round(i * num_layers / 4) for i in range(5)]
        return list(zip(bounds, bounds[1:]))
    ranges = [(pair[0], pair[-1] + 1) for pair in indexes]
    starts, stops = zip(*ranges)
    if starts != (0, *stops[:-1]) or stops[-1] != num_layers or any(a >= b for a, b in ranges):
        raise ConfigError(f'interaction_indexes={indexes} must cover the {num_layers} layers in order, without gaps')
    return ranges


def _check_adapter(source: str | None, interactions: int, value_dims: int, num_heads: int) -> None:
    if source not in ('last', 'interaction', None):
        raise ConfigError(f'unknown vit_feature_source={source!r}; choose one of: last, interaction')
    if source == 'interaction' and interactions != 4:
        raise ConfigError(f"vit_feature_source='interaction' needs four interactions, not {interactions}")
    if value_dims % num_heads:
        raise ConfigError(
            f'embed_dims * deform_ratio = {value_dims} is not a multiple of deform_num_heads={num_heads}'
        )
