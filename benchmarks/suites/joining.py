"""What LaPE, PVG, MPVG, Dual PatchNorm and placements of the norms cost beside the plain ViT."""

from collections.abc import Callable
from functools import partial

from benchmarks.comparison import STEP, Comparison, Settings, doing, of_models
from benchmarks.models import vit
from mmlape.projects.pe_figures.balance import measure_balance

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
    """Return a comparison of each case and work, and of a measurement of `--log-pe-balance` with a training step."""
    title, lape = settings.title('ViT'), partial(vit, settings, **LAPE)
    comparing = []
    for case, changes in CASES.items():
        models = {name: partial(vit, settings, **change) for name, change in changes.items()}
        comparing += of_models(settings, f'{title}: {case}', models, (STEP, 'forward'), memory='LaPE' in changes)

    def measurement() -> Callable[[], object]:
        model, images = lape(), settings.inputs()[:4]
        return lambda: measure_balance(model, images)

    sides = {STEP: doing(settings, STEP, lape), 'PE balance of 4 images': measurement}
    return [*comparing, Comparison(f'{title}: PE balance, one of each', sides)]
