"""ViT-Adapter: LaPE beside default in our code, and our code beside the public one where a checkout is given."""

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import adapter


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, size (a multiple of 32, for the public code), dtype and work."""
    name = f'ViT-Adapter, {settings.arch}'
    sides = {'default': lambda size: adapter(settings), 'LaPE': lambda size: adapter(settings, pe_joining='lape')}
    cases = [Models(f'{name}: LaPE against default PE', sides, memory=True)]
    if 'vit-adapter' in settings.checkouts:
        from benchmarks.public import public_adapter

        sides = {
            'public code': lambda size: public_adapter(settings, adapter(settings).state_dict()),
            'mmlape': lambda size: adapter(settings),
        }
        cases.append(Models(f'{name}: mmlape against the public code', sides, equal=True, memory=True))
    sizes = tuple(sorted({-(-size // 32) * 32 for size in settings.sizes}))
    return [one for models in cases for one in models.comparisons('adapter', settings, sizes)]
