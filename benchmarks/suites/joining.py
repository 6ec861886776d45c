"""What LaPE, PVG, MPVG, Dual PatchNorm and placements of the norms cost beside the plain ViT."""

from collections.abc import Callable

from benchmarks.comparison import Comparison, Models, Settings, Side, step_work
from benchmarks.models import vit
from mmlape.models.base.balance import measure_balance

LAPE, DPN = dict(pe_joining='lape'), dict(patch_norm='dual')
CASES = {
    'LaPE against default PE': {'default': {}, 'LaPE': LAPE},
    'PVG and MPVG against LaPE, without a class token': {
        name: dict(pe_joining=name.lower(), with_cls_token=False) for name in ('LaPE', 'PVG', 'MPVG')
    },
    'Dual PatchNorm against a plain stem': {'plain': {}, 'dual': DPN},
    'LaPE + DPN against neither': {'default': {}, 'LaPE + DPN': LAPE | DPN},
    'norm placements against pre': {
        'pre': {},
        'post': dict(norm_placement='post'),
        'post on the branch': dict(norm_placement=dict(attn='post', ffn='post', on='branch')),
    },
}


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, size, dtype and work."""
    found = []
    for case, changes in CASES.items():
        sides = {name: lambda size, some=some: vit(settings, size, **some) for name, some in changes.items()}
        models = Models(f'{settings.arch}: {case}', sides, ('training step', 'forward'), memory='LaPE' in changes)
        found += models.comparisons('joining', settings)
    return found + [_balance(settings, size, dtype) for size in settings.sizes for dtype in settings.dtypes]


def _balance(settings: Settings, size: int, dtype: str) -> Comparison:
    """Compare what `train --log-pe-balance` does every 50 iterations with one training step."""

    def step() -> Callable[[], object]:
        return step_work(vit(settings, size, **LAPE), settings.inputs(size), settings, dtype)

    def measurement() -> Callable[[], object]:
        model, images = vit(settings, size, **LAPE), settings.inputs(size)[:4]
        return lambda: measure_balance(model, images)

    sides = [Side('training step', step), Side('PE balance of 4 images', measurement)]
    case = f'{settings.arch}: PE balance'
    return Comparison('joining', case, 'one of each', settings.shape(size), dtype, sides, counted=False)
