"""What LaPE and Dual PatchNorm cost: a training step and inference, beside the plain ViT of our own code."""

from benchmarks.comparison import WORKS, Comparison, Settings, Side
from benchmarks.models import vit

CASES = {
    'LaPE against default PE': {'default': {}, 'LaPE': dict(pe_joining='lape')},
    'Dual PatchNorm against a plain stem': {'plain': {}, 'dual': dict(patch_norm='dual')},
    'LaPE + DPN against neither': {'default': {}, 'LaPE + DPN': dict(pe_joining='lape', patch_norm='dual')},
}


def comparisons(settings: Settings) -> list[Comparison]:
    """One per size, dtype, case and work."""
    return [
        _comparison(settings, size, dtype, case, work)
        for size in settings.sizes
        for dtype in settings.dtypes
        for case in CASES
        for work in ('training step', 'forward')
    ]


def _comparison(settings: Settings, size: int, dtype: str, case: str, work: str) -> Comparison:
    def side(changes: dict):
        return lambda: WORKS[work](vit(settings, size, **changes), settings.picture(size), settings, dtype)

    return Comparison(
        suite='joining',
        case=f'{settings.arch}: {case}',
        work=work,
        shape=settings.shape(size),
        dtype=dtype,
        sides=[Side(name, side(changes)) for name, changes in CASES[case].items()],
        items=settings.images(size),
        memory=work != 'forward' and case.startswith('LaPE against'),
    )
