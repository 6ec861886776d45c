"""ViT-Adapter's convolutional pyramid, and its exchange of ViT tokens x and pyramid cells c (arXiv 2205.08534).

inject:   x <- x + gamma * MSDA(LN(x), LN(c))
extract:  c <- c + MSDA(LN(c), LN(x));  c <- c + ConvFFN(LN(c))
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmlape.models.adapter.deform_attn import FeatureLevels, MSDeformAttn
from mmlape.models.grid import Grid, convolution_layout
from mmlape.models.layers.transformer_layer import DropPath, add_branch
from mmlape.models.named_layers import build_norm


def split_maps(x: Tensor, shapes: Sequence[Grid]) -> list[Tensor]:
    """View cells (B, S, C) of maps ``shapes``, one map after the other, as maps (B, C, rows, columns)."""
    parts = x.transpose(1, 2).split([rows * columns for rows, columns in shapes], dim=-1)
    return [part.unflatten(-1, shape) for part, shape in zip(parts, shapes)]


class ConvFFN(nn.Module):
    """Feed-forward network with a depthwise 3x3 convolution of every map between its first linear map and the GELU."""

    def __init__(self, embed_dims: int, hidden_dims: int):
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        # named as in the public code, which has a module around it
        self.dwconv = nn.ModuleDict(dict(dwconv=nn.Conv2d(hidden_dims, hidden_dims, 3, padding=1, groups=hidden_dims)))
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dims, embed_dims)

    def forward(self, x: Tensor, shapes: Sequence[Grid]) -> Tensor:
        """Map the cells (B, S, D) of maps ``shapes`` to (B, S, D)."""
        levels = [self.dwconv['dwconv'](level).flatten(2).transpose(1, 2) for level in split_maps(self.fc1(x), shapes)]
        return self.fc2(self.act(torch.cat(levels, dim=1)))


class DeformableExchange(nn.Module):
    """What injector and extractor share.

    Queries read features by deformable attention, each normed before. Features have ``n_levels``
    levels; ``ratio`` is the width of the values relative to ``embed_dims``.
    """

    def __init__(self, embed_dims: int, n_levels: int, num_heads: int, n_points: int, ratio: float, norm_cfg: dict):
        super().__init__()
        self.query_norm = build_norm(norm_cfg, embed_dims)
        self.feat_norm = build_norm(norm_cfg, embed_dims)
        self.attn = MSDeformAttn(embed_dims, n_levels, num_heads, n_points, ratio)

    def read(self, query: Tensor, query_levels: FeatureLevels, feat: Tensor, feat_levels: FeatureLevels) -> Tensor:
        """Return what the queries (B, Q, D) read of the features (B, S, D), (B, Q, D)."""
        return self.attn(self.query_norm(query), query_levels, self.feat_norm(feat), feat_levels)


class Injector(DeformableExchange):
    """ViT tokens read the pyramid; ``gamma`` scales what they add, per channel."""

    def __init__(self, embed_dims: int, *args, init_values: float = 0.0, **kwargs):
        super().__init__(embed_dims, *args, **kwargs)
        self.gamma = nn.Parameter(torch.full((embed_dims,), float(init_values)))

    def forward(self, x: Tensor, x_levels: FeatureLevels, c: Tensor, c_levels: FeatureLevels) -> Tensor:
        """Return the tokens (B, N, D) with what they read of the cells (B, S, D)."""
        return add_branch(x, self.read(x, x_levels, c, c_levels), self.gamma)


class Extractor(DeformableExchange):
    """The pyramid reads the ViT tokens.

    Then, with ``cffn_ratio``, its ConvFFN, whose branch alone is dropped.
    """

    def __init__(self, embed_dims: int, *args, cffn_ratio: float | None = 0.25, drop_path: float = 0.0, **kwargs):
        super().__init__(embed_dims, *args, **kwargs)
        self.ffn = None
        if cffn_ratio is not None:
            self.ffn = ConvFFN(embed_dims, int(embed_dims * cffn_ratio))
            self.ffn_norm = build_norm(kwargs['norm_cfg'], embed_dims)
            self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, c: Tensor, c_levels: FeatureLevels, x: Tensor, x_levels: FeatureLevels) -> Tensor:
        """Return the cells (B, S, D) with what they read of the tokens (B, N, D)."""
        c = c + self.read(c, c_levels, x, x_levels)
        if self.ffn is not None:
            c = c + self.drop_path(self.ffn(self.ffn_norm(c), c_levels.spatial_shapes))
        return c


class InteractionBlock(nn.Module):
    """Injector before, extractor after a range of the ViT's layers.

    Args:
        embed_dims: Width D of tokens and cells.
        shared: Arguments of injector and extractor.
        init_values: Initial gamma of the injector.
        ffn: Further arguments of the extractor.
        num_extra: Further extractors behind it.
        with_cp: Recompute activations in the backward pass to save memory.
        with_injector: Whether there is an injector; without one, tokens stay as they are.
    """

    def __init__(
        self,
        embed_dims: int,
        shared: dict,
        init_values: float,
        ffn: dict,
        num_extra: int = 0,
        with_cp: bool = False,
        with_injector: bool = True,
    ):
        super().__init__()
        self.injector = None
        if with_injector:
            self.injector = Injector(embed_dims, n_levels=3, init_values=init_values, **shared)
        self.extractor = Extractor(embed_dims, n_levels=1, **ffn, **shared)
        extra = [Extractor(embed_dims, n_levels=1, **ffn, **shared) for _ in range(num_extra)]
        self.extra_extractors = nn.ModuleList(extra) if extra else None
        self.with_cp = with_cp

    def inject(self, x: Tensor, x_levels: FeatureLevels, c: Tensor, c_levels: FeatureLevels) -> Tensor:
        """Return the ViT tokens (B, N, D) after they have read the pyramid (B, S, D)."""
        return self._run(self.injector, x, x_levels, c, c_levels)

    def extract(self, c: Tensor, c_levels: FeatureLevels, x: Tensor, x_levels: FeatureLevels) -> Tensor:
        """Return the pyramid (B, S, D) after it has read the ViT tokens (B, N, D)."""
        for extractor in (self.extractor, *(self.extra_extractors or ())):
            c = self._run(extractor, c, c_levels, x, x_levels)
        return c

    def _run(self, module: nn.Module, *args) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(module, *args, use_reentrant=False)
        return module(*args)


def _conv_bn_relu(in_channels: int, out_channels: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
    return [conv, nn.SyncBatchNorm(out_channels), nn.ReLU()]


class SpatialPriorModule(nn.Module):
    """A convolutional stem of ``inplanes`` channels and three stages.

    Images to maps at strides 4, 8, 16, 32.
    """

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
        """Map images (B, C, H, W) to [(B, D, H/4, W/4), ..., (B, D, H/32, W/32)]."""
        x = convolution_layout(x.device)(x)
        maps = []
        for stage, project in zip(
            (self.stem, self.conv2, self.conv3, self.conv4), (self.fc1, self.fc2, self.fc3, self.fc4)
        ):
            x = stage(x)
            maps.append(project(x))
        return maps
