"""ViT-Adapter (arXiv 2205.08534).

A pyramid beside a plain ViT, with the names and numerics of the public checkpoints.

    x <- inject(x, c);  x <- layers(x);  c <- extract(c, x)

x are the ViT's patch tokens, c the cells of a convolutional pyramid at strides 8, 16 and 32, in
this order. Any ViT will do, see ``AdapterMixin``; over ours it is ``ViTAdapter``.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.init import trunc_normal_

from mmlape.errors import ConfigError
from mmlape.lazy import Lazy
from mmlape.models.adapter.deform_attn import FeatureLevels, MSDeformAttn
from mmlape.models.adapter.layers import InteractionBlock, SpatialPriorModule, split_maps
from mmlape.models.grid import (
    Grid,
    ceil_div,
    contiguous,
    convolution_layout,
    pad_to_multiple,
    require_multiple,
    require_patch,
    to_maps,
)
from mmlape.models.model_names import name_models, with_variants
from mmlape.models.vit.model import AUGREG, BEIT, BEIT_VARIANTS, DEIT, UNI_PERCEIVER, VisionTransformer, sizes

SHARED = ('in_channels', 'drop_path_rate', 'norm_cfg', 'with_cp')
"""Arguments of the ViT that the adapter's parts take too."""
FIXED = dict(
    num_registers=0, final_norm=False, out_indices=-1, out_type='featmap', patch_padding='end', remove_position=None
)
PATCHES = (16, 14)
STRIDES = (4, 8, 16, 32)
DEFORM: dict[str, dict[str, Any]] = {
    'tiny': dict(deform_num_heads=6),
    'base': dict(deform_num_heads=12, deform_ratio=0.5),
    'large': dict(deform_num_heads=16, deform_ratio=0.5),
}
"""Heads and width of the public adapters' deformable attention by size."""


class AdapterMixin(nn.Module):
    """The adapter's parts and its forward, for a module that is a ViT or holds one.

    A subclass calls ``build_adapter`` at the end of its constructor; its ViT is ``self.plain_vit``.
    """

    strides = STRIDES

    @property
    def plain_vit(self) -> Any:
        """The ViT below the adapter: by default the module itself.

        It has ``embed_dims``, ``patch_size``, ``num_layers``, ``embed``, ``run_layers`` and ``split_prefix`` as an
        ``IsotropicBackbone`` has them.
        """
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
        """Add the adapter's parts, under their official names.

        See ``ViTAdapter`` for the arguments. Without injectors, the pyramid reads the ViT, which is
        left as it is.

        Raises:
            ConfigError: If the arguments do not fit the ViT or one another.
        """
        dims = self.plain_vit.embed_dims
        self.ranges = resolve_interactions(interaction_indexes, self.plain_vit.num_layers)
        value_dims = int(dims * deform_ratio)
        if vit_feature_source not in ('last', 'interaction', None):
            raise ConfigError(f'unknown vit_feature_source={vit_feature_source!r}; choose one of: last, interaction')
        if vit_feature_source == 'interaction' and len(self.ranges) != 4:
            raise ConfigError(f"vit_feature_source='interaction' needs four interactions, not {len(self.ranges)}")
        if value_dims % deform_num_heads:
            fitting = next(count for count in range(deform_num_heads, 0, -1) if value_dims % count == 0)
            raise ConfigError(
                f'embed_dims * deform_ratio = {value_dims} is not a multiple of '
                f'deform_num_heads={deform_num_heads}; set deform_num_heads={fitting}'
            )
        self.vit_feature_source = vit_feature_source
        self.level_embed = nn.Parameter(torch.randn(3, dims))
        self.spm = SpatialPriorModule(conv_inplane, dims, in_channels)
        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        shared = dict(num_heads=deform_num_heads, n_points=n_points, ratio=deform_ratio, norm_cfg=norm_cfg)
        ffn = dict(cffn_ratio=cffn_ratio, drop_path=drop_path_rate)
        last = len(self.ranges) - 1
        self.interactions = nn.ModuleList(
            InteractionBlock(
                embed_dims=dims,
                shared=shared,
                init_values=init_values,
                ffn=ffn,
                num_extra=2 if use_extra_extractor and i == last else 0,
                with_cp=with_cp,
                with_injector=with_injectors,
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
        """Map images (B, C, H, W) to the pyramid: (B, D, ceil(H / s), ceil(W / s)) at the strides s = 4, 8, 16, 32.

        Raises:
            DataError: If a side of the images is smaller than a patch, or no multiple of 224 with
                patches of 14.
        """
        height, width = x.shape[-2:]
        vit, side = self.plain_vit, self.plain_vit.patch_size
        require_patch(x, side)
        multiple = math.lcm(STRIDES[-1], side)
        if multiple != STRIDES[-1]:  # two grids, which only such sides divide alike
            require_multiple(x, multiple)
        x = pad_to_multiple(x, multiple)
        lay_out = convolution_layout(x.device)
        c1, *levels = self.spm(x)
        c_levels = FeatureLevels.of([(int(level.shape[2]), int(level.shape[3])) for level in levels], x.device)
        flat = [level.flatten(2).transpose(1, 2) + embed for level, embed in zip(levels, self.level_embed)]
        c = torch.cat(flat, dim=1)  # (B, S, D)

        hw = int(x.shape[2]) // side, int(x.shape[3]) // side
        x_levels = FeatureLevels.of([hw], x.device)
        features, injects = [], self.interactions[0].injector is not None
        if injects:
            x, state, _ = vit.embed(x)
        else:
            features = self.read_layers(x)
        for number, (interaction, (start, stop)) in enumerate(zip(self.interactions, self.ranges)):
            if injects:
                prefix, patches = vit.split_prefix(x)
                patches = interaction.inject(patches, x_levels, c, c_levels)
                x = torch.cat((prefix, patches), dim=1) if prefix.shape[1] else patches
                x, state = vit.run_layers(x, state, hw, start, stop)
                features.append(self.read_patches(x, state, stop - 1))
            c = interaction.extract(c, c_levels, features[number], x_levels)

        c2, c3, c4 = split_maps(c, c_levels.spatial_shapes)
        maps = [self.up(lay_out(c2)) + c1, c2, c3, c4]
        if self.vit_feature_source:
            maps = self._add_features(maps, features, hw)
        outs = []
        for norm, m, stride in zip((self.norm1, self.norm2, self.norm3, self.norm4), maps, STRIDES):
            out = norm(lay_out(m))
            if out.requires_grad and not torch.compiler.is_compiling():
                # gradients of another layout are ten times as slow there
                out.register_hook(lay_out)
            shape = ceil_div(height, stride), ceil_div(width, stride)
            out = out if out.shape[-2:] == shape else out[..., : shape[0], : shape[1]]
            outs.append(contiguous(out))  # not every op of a head knows channels last
        return tuple(outs)

    def compile_units(self) -> Sequence[nn.Module]:
        """Return the ViT's layers, the injectors and the extractors."""
        units = list(super().compile_units())
        for interaction in self.interactions:
            units += [interaction.injector] if interaction.injector is not None else []
            units += [interaction.extractor, *(interaction.extra_extractors or ())]
        return units

    def read_layers(self, x: Tensor) -> list[Tensor]:
        """Return the patches (B, N, D) of padded images that the interactions read, where nothing is injected."""
        x, state, hw = self.plain_vit.embed(x)
        read = []
        for start, stop in self.ranges:
            x, state = self.plain_vit.run_layers(x, state, hw, start, stop)
            read.append(self.read_patches(x, state, stop - 1))
        return read

    def read_patches(self, x: Tensor, state: Any, layer: int) -> Tensor:
        """Return the patches (B, N, D) that the pyramid reads of the tokens (B, P + N, D) behind a layer.

        ``state`` is what the layer has passed on beside them.
        """
        return self.plain_vit.split_prefix(x)[1]

    def _add_features(self, maps: list[Tensor], features: list[Tensor], hw: Grid) -> list[Tensor]:
        sources = features if self.vit_feature_source == 'interaction' else [features[-1]] * 4
        out, lay_out = [], convolution_layout(maps[0].device)
        for m, source in zip(maps, sources):
            # as the maps are: a sum of two layouts is slow
            feature = lay_out(to_maps(source, hw))
            if feature.shape[-2:] != m.shape[-2:]:
                feature = F.interpolate(feature, m.shape[-2:], mode='bilinear', align_corners=False)
            out.append(m + feature)
        return out


def _sizes(name: str, options: dict, *of: str) -> dict[str, dict[str, Any]]:
    """Return the arguments of an adapter over a base by name, with the deformable attention of its size."""
    return {
        f'{key}-adapter': arguments | DEFORM[key.rpartition('-')[2]]
        for key, arguments in sizes(name, options, *of).items()
    }


class ViTAdapter(AdapterMixin, VisionTransformer):
    """ViT-Adapter over the same ViT: any joining, position encoding and patch norm of ``VisionTransformer``.

    Images of any size of at least one patch work: sides are padded with zeros on the right and the
    bottom to a multiple of 32 inside, and each map is cropped back to ``ceil(side / stride)``.
    ``patch_size=14`` is DINOv2's own adapter: the ViT keeps a grid of its own beside the pyramid's,
    and sides must be multiples of 224.

    Args:
        arch: As in ``VisionTransformer``.
        img_size: As in ``VisionTransformer``.
        conv_inplane: Width of the convolutional stem.
        n_points: Places that deformable attention samples per head and level.
        deform_num_heads: Its heads.
        init_values: Initial gamma of the injectors.
        interaction_indexes: First and last layer of each interaction; None splits the layers into
            four.
        with_cffn: Whether extractors have a ConvFFN.
        cffn_ratio: Its width relative to ``embed_dims``.
        deform_ratio: Width of the deformable attention's values relative to ``embed_dims``.
        add_vit_feature: Whether the ViT's own features are added to the maps.
        use_extra_extractor: Whether two more extractors follow the last one.
        vit_feature_source: Which ViT features are added: 'last' (all four maps from the last layer,
            as in the public detection code) or 'interaction' (map k from the tokens after
            interaction k, as in the segmentation code).
        layer_scale_init_value: Initial LayerScale gammas.
        with_cls_token: Whether a class token runs along, as in the public segmentation code over
            BEiT and DINOv2; the pyramid does not read it. A PE table has the row that a checkpoint
            has for it in any case, but for ``pe_joining='pvg'`` and 'mpvg', whose pretraining has
            no class token.
        **kwargs: Of ``VisionTransformer``. There are no registers, no final norm and no other
            outputs than the four maps; ``patch_size`` is 16 or 14, and images are padded at their
            end. Without a final norm, 'mpvg' joins as 'pvg' does: weights that MPVG has pretrained
            are loaded without their last norm of the PE.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the
            valid choices.
    """

    checkpoint_adapter = Lazy('mmlape.models.vit.checkpoint', 'OF_ADAPTER')
    model_names = (
        name_models('{}-adapter', DEIT)
        | with_variants(_sizes('augreg', {}, 'tiny') | _sizes('augreg', AUGREG, 'base', 'large'))
        | with_variants(_sizes('beit', BEIT | dict(init_values=1e-6), 'base', 'large'), BEIT_VARIANTS)
        | _sizes('uni-perceiver', UNI_PERCEIVER, 'base', 'large')
    )
    keeps_class_row = True
    paper_name = 'DeiT'
    paper_adapter = 'ViT-Adapter'

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
        with_cls_token: bool = False,
        **kwargs,
    ):
        for key, only in FIXED.items():
            if kwargs.get(key, only) != only:
                raise ConfigError(f'ViTAdapter works with {key}={only!r} only, not {kwargs[key]!r}')
        if kwargs.get('patch_size', PATCHES[0]) not in PATCHES:
            raise ConfigError(f'ViTAdapter works with patch_size=16 or 14 only, not {kwargs["patch_size"]!r}')
        shared = dict(layer_scale_init_value=layer_scale_init_value, with_cls_token=with_cls_token)
        super().__init__(arch, img_size, **shared, **{**FIXED, **kwargs})
        self.register_arguments(locals(), **kwargs)
        self.build_adapter(
            conv_inplane=conv_inplane,
            n_points=n_points,
            deform_num_heads=deform_num_heads,
            init_values=init_values,
            interaction_indexes=interaction_indexes,
            cffn_ratio=cffn_ratio if with_cffn else None,
            deform_ratio=deform_ratio,
            use_extra_extractor=use_extra_extractor,
            vit_feature_source=vit_feature_source if add_vit_feature else None,
            **{key: kwargs[key] for key in SHARED if key in kwargs},
        )
        self.strides = AdapterMixin.strides
        self.recorded_arguments['n_points'] = n_points


def resolve_interactions(indexes: Sequence[Sequence[int]] | None, num_layers: int) -> list[tuple[int, int]]:
    """Return layer ranges [start, stop) from pairs of first and last layer.

    None splits the layers into four.

    Raises:
        ConfigError: If the pairs do not cover the layers in order.
    """
    if indexes is None:
        bounds = [round(i * num_layers / 4) for i in range(5)]
        return list(zip(bounds, bounds[1:]))
    ranges = [(pair[0], pair[-1] + 1) for pair in indexes]
    starts, stops = [start for start, _ in ranges], [0, *(stop for _, stop in ranges)]
    if starts != stops[:-1] or stops[-1] != num_layers or any(a >= b for a, b in ranges):
        raise ConfigError(f'interaction_indexes={indexes} must cover the {num_layers} layers in order, without gaps')
    return ranges
