"""ViT-Adapter: LaPE beside default in our code, and our code beside the public one where a checkout is given."""

from collections.abc import Callable

import torch

from benchmarks.comparison import WORKS, Comparison, Settings, Side
from benchmarks.models import adapter


def comparisons(settings: Settings) -> list[Comparison]:
    """One per size, dtype and work."""
    found = []
    for size in sorted({-(-size // 32) * 32 for size in settings.sizes}):
        for dtype in settings.dtypes:
            for work in ('forward', 'forward + backward'):
                if 'vit-adapter' in settings.checkouts:
                    found.append(_against_public(settings, size, dtype, work))
                found.append(_lape(settings, size, dtype, work))
    return found


def _comparison(settings: Settings, size: int, dtype: str, work: str, case: str, **more) -> Comparison:
    models: dict[str, Callable] = more.pop('models')

    def side(build: Callable) -> Callable:
        return lambda: WORKS[work](build(), settings.picture(size), settings, dtype)

    return Comparison(
        suite='adapter',
        case=f'ViT-Adapter, {settings.arch}: {case}',
        work=work,
        shape=settings.shape(size),
        dtype=dtype,
        sides=[Side(name, side(build)) for name, build in models.items()],
        items=settings.images(size),
        memory=work != 'forward',
        **more,
    )


def _lape(settings: Settings, size: int, dtype: str, work: str) -> Comparison:
    models = {'default': lambda: adapter(settings), 'LaPE': lambda: adapter(settings, pe_joining='lape')}
    return _comparison(settings, size, dtype, work, 'LaPE against default PE', models=models)


def _against_public(settings: Settings, size: int, dtype: str, work: str) -> Comparison:
    from benchmarks.peers import difference
    from benchmarks.public import public_adapter

    def theirs() -> torch.nn.Module:
        return public_adapter(settings, adapter(settings).state_dict())

    def note() -> str:
        images = settings.picture(size, 1)
        with torch.inference_mode():
            pairs = zip(adapter(settings).eval()(images), theirs().eval()(images))
            return difference(*(torch.cat([m.flatten() for m in maps]) for maps in zip(*pairs)))

    models = {'public code': theirs, 'mmlape': lambda: adapter(settings)}
    return _comparison(settings, size, dtype, work, 'mmlape against the public code', models=models, note=note)
