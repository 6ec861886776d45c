"""The same ViT compiled, with recomputed activations, and channels-last, beside the eager one."""

import torch

from benchmarks.comparison import WORKS, Comparison, Settings, Side
from benchmarks.models import adapter, vit


def comparisons(settings: Settings) -> list[Comparison]:
    """One per size, dtype, case and work; on the CPU, where compiling takes long, at the smallest size only."""
    found = []
    for size in settings.sizes if settings.device == 'cuda' else [min(settings.sizes)]:
        for dtype in settings.dtypes:
            for work in ('forward', 'forward + backward'):
                found.append(_comparison(settings, size, dtype, work, 'compiled against eager', 'compiled'))
            found.append(
                _comparison(settings, size, dtype, 'forward + backward', 'with_cp against without', 'with_cp')
            )
            found.append(_comparison(settings, size, dtype, 'forward + backward', 'channels-last', 'channels-last'))
    return found


def _comparison(settings: Settings, size: int, dtype: str, work: str, case: str, mode: str) -> Comparison:
    def model(changed: bool) -> torch.nn.Module:
        if mode == 'channels-last':
            built = adapter(settings, pe_joining='lape')
            return built.to(memory_format=torch.channels_last) if changed else built
        built = vit(settings, size, pe_joining='lape', with_cp=changed and mode == 'with_cp')
        return torch.compile(built) if changed and mode == 'compiled' else built

    def side(changed: bool):
        def build():
            images = settings.picture(size)
            if changed and mode == 'channels-last':
                images = images.contiguous(memory_format=torch.channels_last)
            return WORKS[work](model(changed), images, settings, dtype)

        return build

    name = 'ViT-Adapter, LaPE' if mode == 'channels-last' else 'LaPE'
    return Comparison(
        suite='modes',
        case=f'{settings.arch} {name}: {case}',
        work=work,
        shape=settings.shape(size),
        dtype=dtype,
        sides=[Side('eager' if mode != 'with_cp' else 'kept', side(False)), Side(mode, side(True))],
        items=settings.images(size),
        counted=mode != 'compiled',
        memory=mode == 'with_cp',
    )
