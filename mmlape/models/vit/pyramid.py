"""The baselines beside ViT-Adapter: maps of a plain ViT at strides 4 to 32, as the public code resizes them.

    f1 = deconv(GELU(norm(deconv(x_a)))),  f2 = deconv(x_b),  f3 = x_c,  f4 = max_pool(x_d)

x_a ... x_d are the outputs of four layers, or of one. Over a ViT each is normed first, and the norm between the
deconvolutions is a GroupNorm; over BEiT it is a BatchNorm, and nothing else is normed.
"""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.lazy import Lazy
from mmlape.models.grid import ceil_div, contiguous, pad_to_multiple, require_patch, to_maps
from mmlape.models.named_layers import build_norm
from mmlape.models.vit.model import VisionTransformer

STRIDES = (4, 8, 16, 32)
FIXED = dict(
    num_registers=0, final_norm=False, patch_size=16, out_type='featmap', patch_padding='end', remove_position=None
)


class ViTPyramid(VisionTransformer):
    """A plain ViT whose maps are resized to a pyramid: the baselines of ViT-Adapter's repository.

    ``ViTBaseline`` there is this class as it is; ``BEiTBaseline`` has ``norm_maps=False, up_norm_cfg=dict(
    type='SyncBN'), with_cls_token=True`` and the arguments of BEiT. Images of any size of at least one patch work:
    sides are padded with zeros to a multiple of 32 inside, and each map is cropped to ``ceil(side / stride)``.

    Args:
        arch: As in ``VisionTransformer``.
        img_size: As in ``VisionTransformer``.
        out_indices: Four layers, or one, that maps are made of; None for the ends of four equal parts.
        norm_maps: Whether a norm of its own precedes each map.
        up_norm_cfg: Of the norm between the two deconvolutions; GroupNorm with 32 groups by default.
        layer_scale_init_value: Initial LayerScale gammas.
        with_cls_token: Whether a class token runs along; no map has it. A PE table has its row in any case, but for
            ``pe_joining='pvg'`` and 'mpvg', whose pretraining has no class token.
        **kwargs: Of ``VisionTransformer``. There are no registers and no final norm; ``patch_size`` is 16, and images
            are padded at their end.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the valid choices.
    """

    checkpoint_adapter = Lazy('mmlape.models.vit.checkpoint', 'OF_PYRAMID')
    keeps_class_row = True

    def __init__(
        self,
        arch: str | dict = 'deit-base',
        img_size: int | tuple[int, int] = 224,
        out_indices: int | Sequence[int] | None = None,
        norm_maps: bool = True,
        up_norm_cfg: dict | None = None,
        layer_scale_init_value: float = 1.0,
        with_cls_token: bool = False,
        **kwargs,
    ):
        for key, only in FIXED.items():
            if kwargs.get(key, only) != only:
                raise ConfigError(f'ViTPyramid works with {key}={only!r} only, not {kwargs[key]!r}')
        shared = dict(layer_scale_init_value=layer_scale_init_value, with_cls_token=with_cls_token)
        super().__init__(
            arch, img_size, out_indices=-1 if out_indices is None else out_indices, **shared, **{**FIXED, **kwargs}
        )
        self.register_arguments(locals(), **kwargs)
        if out_indices is None:
            self.out_indices = [max(0, round((i + 1) * self.num_layers / 4) - 1) for i in range(4)]
        if len(self.out_indices) not in (1, 4):
            raise ConfigError(f'out_indices={out_indices!r}: a pyramid is made of four layers, or of one')
        self.strides, dims = STRIDES, self.embed_dims
        norm_cfg = kwargs.get('norm_cfg') or dict(type='LN', eps=1e-6)
        for i in range(1, 5):
            self.add_module(f'norm{i}', build_norm(norm_cfg, dims) if norm_maps else None)
        self.up1 = nn.Sequential(
            nn.ConvTranspose2d(dims, dims, 2, 2),
            build_norm(up_norm_cfg or dict(type='GN', num_groups=32), dims),
            nn.GELU(),
            nn.ConvTranspose2d(dims, dims, 2, 2),
        )
        self.up2 = nn.ConvTranspose2d(dims, dims, 2, 2)
        for deconv in (self.up1[0], self.up1[3], self.up2):
            nn.init.normal_(deconv.weight, std=math.sqrt(2 / (4 * dims)))
            nn.init.zeros_(deconv.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Map images (B, C, H, W) to (B, D, ceil(H / s), ceil(W / s)) at the strides s = 4, 8, 16, 32.

        Raises:
            DataError: If a side of the images is smaller than a patch.
        """
        require_patch(x, self.patch_size)
        height, width = x.shape[-2:]
        x = pad_to_multiple(x, STRIDES[-1])
        hw = self.grid_of((int(x.shape[2]), int(x.shape[3])))
        used = self.read_layers(x) * (4 // len(self.out_indices))
        norms = (self.norm1, self.norm2, self.norm3, self.norm4)
        normed = [x if norm is None else norm(x) for norm, x in zip(norms, used, strict=True)]
        maps = [contiguous(to_maps(x, hw)) for x in normed]
        maps = [self.up1(maps[0]), self.up2(maps[1]), maps[2], F.max_pool2d(maps[3], 2)]
        shapes = [(ceil_div(height, stride), ceil_div(width, stride)) for stride in STRIDES]
        f1, f2, f3, f4 = (m[..., :rows, :columns] for m, (rows, columns) in zip(maps, shapes, strict=True))
        return f1, f2, f3, f4

    def read_layers(self, x: Tensor) -> list[Tensor]:
        """Return the patches (B, N, D) of padded images that the maps are made of."""
        layers = sorted(set(self.out_indices))
        patches = dict(zip(layers, self.patch_tokens(x, layers)[0]))
        return [patches[number] for number in self.out_indices]
