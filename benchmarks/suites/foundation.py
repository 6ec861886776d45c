"""The adapter over DINOv3's ViT of timm: frozen beside trained, and DINOv3's own code where a checkout is given."""

from torch import nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import arch_of, prepared

NAMES = {
    'deit-tiny': 'vit_tiny_patch16_dinov3_qkvb',
    'deit-small': 'vit_small_patch16_dinov3_qkvb',
    'deit-base': 'vit_base_patch16_dinov3_qkvb',
    'deit-large': 'vit_large_patch16_dinov3_qkvb',
}
"""timm's name of the ViT with the widths of each ``--arch``."""


def read_only(settings: Settings, **vit) -> nn.Module:
    """Build the read-only adapter over a ViT with random weights."""
    from mmlape.models import TimmViTAdapter

    arch = arch_of(settings)
    sizes = dict(embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'])
    name = NAMES.get(settings.arch)
    arguments = dict(vit, model_name=name or NAMES['deit-small'], **({} if name else dict(model_args=sizes)))
    heads = {} if name else dict(deform_num_heads=4)
    return prepared(TimmViTAdapter(vit=arguments, mode='read-only', **heads), settings)


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, size (a multiple of 32, for the public code), dtype and work."""
    name = f'read-only adapter, DINOv3, {settings.arch}'
    sides = {
        'trained': lambda size: read_only(settings),
        'recomputed': lambda size: read_only(settings, with_cp=True),
        'frozen': lambda size: read_only(settings, frozen=True),
        'frozen in bf16': lambda size: read_only(settings, frozen=True, frozen_dtype='bf16'),
        'frozen, recomputed': lambda size: read_only(settings, frozen=True, with_cp=True),
        'frozen in bf16, recomputed': lambda size: read_only(settings, frozen=True, frozen_dtype='bf16', with_cp=True),
    }
    cases = [Models(f'{name}: frozen against trained', sides, works=('training step',), memory=True)]
    if 'dinov3' in settings.checkouts:
        from benchmarks.public import public_dinov3

        sides = {
            'public code': lambda size: public_dinov3(settings),
            'mmlape': lambda size: read_only(settings, frozen=True),
        }
        cases.append(Models(f'{name}: mmlape against the public code', sides, works=('forward',)))
    sizes = tuple(sorted({-(-size // 32) * 32 for size in settings.sizes}))
    return [one for models in cases for one in models.comparisons('foundation', settings, sizes)]
