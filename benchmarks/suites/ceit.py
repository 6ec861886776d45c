"""Our CeiT-Ti beside the public one where `--ceit` gives a checkout, and its LaPE beside its default PE, at 224."""

from collections.abc import Callable
from functools import partial

from torch import nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import ceit

SIZES = (224,)


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, dtype and work."""

    def public(size: int):
        from benchmarks.public import public_ceit

        return public_ceit(settings, size, ceit(settings, size).state_dict())

    return of_family('ceit', 'CeiT-Ti', settings, partial(ceit, settings), public)


def of_family(
    name: str, title: str, settings: Settings, ours: Callable[..., nn.Module], public: Callable[[int], nn.Module]
) -> list[Comparison]:
    """Return what is measured of a family: it against the public code of that name, and LaPE against default PE."""
    found = []
    if name in settings.checkouts:
        sides = {'public code': public, 'mmlape': ours}
        models = Models(f'{title}: mmlape against the public code', sides, equal=True, memory=True)
        found += models.comparisons(name, settings, SIZES)
    sides = {'default': ours, 'LaPE': partial(ours, pe_joining='lape')}
    models = Models(f'{title}: LaPE against default PE', sides, ('training step', 'forward'), memory=True)
    return found + models.comparisons(name, settings, SIZES)
