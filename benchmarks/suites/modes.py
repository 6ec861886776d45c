"""The same model compiled, with recomputed activations, and channels-last, beside the eager one."""

import torch
from torch import Tensor, nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import adapter, vit


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, size, dtype and work; on the CPU, where compiling is slow, at the smallest size only."""

    def model(size: int, **changes) -> nn.Module:
        return vit(settings, size, pe_joining='lape', **changes)

    def channels_last(name: str, images: Tensor) -> Tensor:
        return images.contiguous(memory_format=torch.channels_last) if name == 'channels-last' else images

    def pyramid(size: int) -> nn.Module:
        return adapter(settings, pe_joining='lape')

    case, backward = f'{settings.arch} LaPE', ('forward + backward',)
    cases = (
        Models(
            f'{case}: compiled against eager', {'eager': model, 'compiled': lambda size: torch.compile(model(size))},
            equal=True, counted=False,
        ),
        Models(
            f'{case}: with_cp against without', {'kept': model, 'with_cp': lambda size: model(size, with_cp=True)},
            backward, equal=True, memory=True,
        ),
        Models(
            f'{settings.arch} ViT-Adapter, LaPE: channels-last',
            {'eager': pyramid, 'channels-last': lambda size: pyramid(size).to(memory_format=torch.channels_last)},
            backward, equal=True, prepare=channels_last,
        ),
    )  # fmt: skip
    sizes = settings.sizes if settings.device == 'cuda' else (min(settings.sizes),)
    return [one for models in cases for one in models.comparisons('modes', settings, sizes)]
