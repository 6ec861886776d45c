"""Our T2T-ViT-7 beside the public one where `--t2t` gives a checkout, and its LaPE beside its default PE, at 224."""

from functools import partial

from benchmarks.comparison import Comparison, Settings
from benchmarks.models import t2t_vit
from benchmarks.suites.ceit import of_family


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, dtype and work."""

    def public(size: int):
        from benchmarks.public import public_t2t

        return public_t2t(settings, size, t2t_vit(settings, size).state_dict())

    return of_family('t2t', 'T2T-ViT-7', settings, partial(t2t_vit, settings), public)
