"""ViT-Adapter (arXiv 2205.08534) over a plain ViT of timm, and DINOv3's form of it (arXiv 2508.10104).

Injectors let the ViT read the pyramid; DINOv3's form has none.

inject:     x <- inject(x, c);  x <- layers(x);  c <- extract(c, x)
read-only:  x <- layers(x);  c <- extract(c, norm(x))
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from mmlape.errors import ConfigError, require_choice
from mmlape.lazy import Lazy
from mmlape.models.adapter.model import AdapterMixin, resolve_interactions
from mmlape.models.timm.model import ForwardState, TimmViT
from mmlape.models.timm.pretrained import find_model, skeleton

PATCH = 16
"""The stride of the ViT's tokens beside the pyramid."""
MODES = ('inject', 'read-only')
PATCH14 = ('resize-image', 'resample-kernel', 'two-grids')
READ_ONLY = dict(deform_num_heads=16, deform_ratio=0.5, vit_feature_source='interaction', drop_path_rate=0.3)
"""DINOv3's defaults, where they differ from ViT-Adapter's."""


class TimmViTAdapter(AdapterMixin, TimmViT):
    """The adapter over any ViT that ``TimmViT`` takes.

    Names are official, the ViT's are ``vit.`` and timm's. Class token and registers run along and
    are split off before the exchange. Sides of images are padded with zeros to a multiple of 32
    inside, and each map is cropped back to ``ceil(side / stride)``.

    Args:
        vit: Arguments of ``TimmViT`` but for its outputs and ``final_norm``.
        mode: 'inject' is ViT-Adapter's; 'read-only' is DINOv3's: no injectors, the pyramid reads
            the normed tokens of some layers, and the ViT may be frozen.
        patch14: What a ViT of patch 14 does beside maps at stride 16: 'resize-image' scales its
            image by 14/16 and leaves its weights, the default of a frozen ViT; 'resample-kernel'
            resamples its stem to patch 16, the default of a trained one; 'two-grids' keeps its own
            grid, as DINOv2's adapter does, for sides that are multiples of 224.
        layers: The last layer of each interaction, counted from 0; by default four that divide the
            layers evenly. Layers behind the last one are left out.
        drop_path_rate: Of the extractors' ConvFFN; by default 0.3 in 'read-only', as DINOv3's, else
            the ViT's.
        init_cfg: As in ``TimmViT``.
        **kwargs: The adapter's, as in ``AdapterMixin.build_adapter``; ``in_channels`` is the ViT's,
            too. In 'read-only' their defaults
            are DINOv3's: ``deform_num_heads=16``, ``deform_ratio=0.5``,
            ``vit_feature_source='interaction'``.

    Raises:
        ConfigError: For unknown names and for combinations that cannot work; the message has the
            valid choices.
    """

    checkpoint_adapter = Lazy('mmlape.models.timm.checkpoint', 'OF_TIMM_ADAPTER')
    paper_name = None

    def __init__(
        self,
        vit: dict,
        mode: str = 'inject',
        patch14: str | None = None,
        layers: Sequence[int] | None = None,
        drop_path_rate: float | None = None,
        init_cfg: dict | list[dict] | None = None,
        **kwargs,
    ):
        base = _checked(dict(vit), mode)
        self.resizes_image = _fit_patch(base, patch14)
        read_only = mode == 'read-only'
        base['model_args'] = _same_channels(base.get('model_args') or {}, kwargs)
        of_vit, removed = base.pop('init_cfg', None), base.pop('remove_position', None)
        if init_cfg and of_vit:
            raise ConfigError('TimmViTAdapter: init_cfg and the one of vit each name weights: give one of them')
        super().__init__(**base, final_norm=read_only, init_cfg=init_cfg or of_vit)
        self.register_arguments(locals(), **kwargs)
        ranges = _ranges(layers, len(self.vit.blocks))
        self.keep_layers(ranges[-1][-1] + 1)
        self.add_removal(removed, [last for _, last in ranges], self.source.normalisation)
        if patch14 != 'two-grids':
            self.patch_size = PATCH
        options = dict(READ_ONLY if read_only else dict(drop_path_rate=base.get('drop_path_rate', 0.0)))
        options |= dict(with_cp=base.get('with_cp', False), interaction_indexes=ranges, **kwargs)
        options['in_channels'] = self.in_channels
        if drop_path_rate is not None:
            options['drop_path_rate'] = drop_path_rate
        self.build_adapter(**options, with_injectors=not read_only)
        self.strides = AdapterMixin.strides

    def embed(self, x: Tensor) -> tuple[Tensor, ForwardState, tuple[int, int]]:
        """Return the first layer's tokens of images at stride 16, what layers need, and the grid."""
        if self.resizes_image:
            side = self.vit.patch_embed.patch_size[0]
            size = [length // PATCH * side for length in x.shape[-2:]]
            x = F.interpolate(x, size, mode='bilinear', align_corners=False)
        return super().embed(x)

    def read_layers(self, x: Tensor) -> list[Tensor]:
        """Return the patches (B, N, D) of padded images that the pyramid reads in 'read-only'."""
        if self.removal is not None:
            self.removal.prepare(self, x)
        return super().read_layers(x)

    def read_patches(self, x: Tensor, state: ForwardState, layer: int) -> Tensor:
        """Return the patches (B, N, D) that the pyramid reads.

        Through the final norm in 'read-only', and without position if so asked.
        """
        patches = self.normed(self.split_prefix(x)[1], last=False, state=state)
        return patches if self.removal is None else self.removal(patches, layer)


def _checked(vit: dict, mode: str) -> dict:
    """Return the arguments of the ViT with its type left out."""
    vit.pop('type', None)
    require_choice('mode', mode, MODES)
    fixed = [key for key in ('out_indices', 'out_type', 'final_norm') if key in vit]
    if fixed:
        raise ConfigError(f'TimmViTAdapter: vit takes no {", ".join(fixed)}; layers says what the pyramid reads')
    if vit.get('frozen') and mode == 'inject':
        raise ConfigError("mode='inject' trains injectors through the ViT, so frozen=True needs mode='read-only'")
    return vit


def _same_channels(model_args: dict, adapter: dict) -> dict:
    """Return timm's arguments with the channels of the images, which ViT or adapter may name.

    Raises:
        ConfigError: If they name different ones.
    """
    channels = [args[key] for args, key in ((model_args, 'in_chans'), (adapter, 'in_channels')) if key in args]
    if len(set(channels)) > 1:
        raise ConfigError(
            f'TimmViTAdapter: in_channels={channels[1]}, but model_args of vit have in_chans={channels[0]}: '
            'both read the same images, name one of them'
        )
    return model_args | ({'in_chans': channels[0]} if channels else {})


def _fit_patch(vit: dict, patch14: str | None) -> bool:
    """Set the patch size where the kernel is resampled.

    Return whether the image is resized instead.

    Raises:
        ConfigError: If the ViT's patch size does not fit.
    """
    if patch14 is not None:
        require_choice('patch14', patch14, PATCH14)
    embed = skeleton(find_model(vit['model_name']).architecture).patch_embed
    model_args = vit.get('model_args') or {}
    side = vit.get('patch_size') or model_args.get('patch_size') or embed.patch_size[0]
    if isinstance(side, tuple | list) and len(set(side)) == 1:
        side = side[0]
    if side == PATCH:
        return False
    if side != 14:
        raise ConfigError(
            f'{vit["model_name"]} has patches of {side} pixels: the adapter takes 14 or 16; '
            'vit=dict(patch_size=16) resamples its stem'
        )
    if patch14 == 'two-grids':
        return False
    if (patch14 or PATCH14[not vit.get('frozen')]) == 'resize-image':
        return True
    vit['patch_size'] = PATCH
    if 'img_size' not in vit:  # so that the PE keeps its grid
        vit['img_size'] = tuple(PATCH * cells for cells in embed.grid_size)
    return False


def _ranges(layers: Sequence[int] | None, depth: int) -> list[tuple[int, int]]:
    """Return the first and last layer of each interaction from the last ones.

    Raises:
        ConfigError: For a layer that is not there, or out of order.
    """
    if layers is None:
        return [(start, stop - 1) for start, stop in resolve_interactions(None, depth)]
    last = [layer % depth for layer in layers]
    if sorted(set(last)) != last or max(layers, default=depth) >= depth:
        raise ConfigError(f'layers={list(layers)} must be different ones of 0 to {depth - 1}, in order')
    return list(zip([0, *(layer + 1 for layer in last)], last))
