"""Our LaPE ViT beside the public one, at the size it is built for; empty without ``--lape``."""

import torch

from benchmarks.comparison import WORKS, Comparison, Settings, Side
from benchmarks.models import vit
from benchmarks.peers import difference


def comparisons(settings: Settings) -> list[Comparison]:
    """One per size, dtype and work; the public model wants images of the size that it was made for."""
    if 'lape' not in settings.checkouts:
        return []
    return [
        _comparison(settings, size, dtype, work)
        for size in settings.sizes
        for dtype in settings.dtypes
        for work in ('forward', 'training step')
    ]


def _comparison(settings: Settings, size: int, dtype: str, work: str) -> Comparison:
    from benchmarks.public import public_lape

    def ours() -> torch.nn.Module:
        return vit(settings, size, pe_joining='lape', out_type='cls_token')

    def theirs() -> torch.nn.Module:
        return public_lape(settings, size, ours().state_dict())

    def note() -> str:
        images = settings.picture(size, 1)
        with torch.inference_mode():
            return difference(ours().eval()(images)[0], theirs().eval()(images))

    def side(build):
        return lambda: WORKS[work](build(), settings.picture(size), settings, dtype)

    return Comparison(
        suite='public',
        case=f'{settings.arch}, LaPE: mmlape against the public code',
        work=work,
        shape=settings.shape(size),
        dtype=dtype,
        sides=[Side('public code', side(theirs)), Side('mmlape', side(ours))],
        items=settings.images(size),
        memory=work != 'forward',
        note=note,
    )
