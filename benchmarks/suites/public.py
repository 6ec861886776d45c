"""Our LaPE ViT beside the public one, at the size it is built for; empty without `--lape`."""

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import vit


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per size, dtype and work."""
    if 'lape' not in settings.checkouts:
        return []
    from benchmarks.public import public_lape

    def ours(size: int):
        return vit(settings, size, pe_joining='lape', out_type='cls_token')

    sides = {'public code': lambda size: public_lape(settings, size, ours(size).state_dict()), 'mmlape': ours}
    case = f'{settings.arch}, LaPE: mmlape against the public code'
    models = Models(case, sides, ('forward', 'training step'), equal=True, memory=True)
    return models.comparisons('public', settings)
