"""The adapter over BEiT beside the public segmentation code; empty without `--vit-adapter`."""

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import beit_adapter, random_offsets
from benchmarks.public import OF_BEIT, public_beit_adapter


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per size (a multiple of 32), dtype and work; BEiT's tables are made for the size."""
    if 'vit-adapter' not in settings.checkouts:
        return []
    sides = {
        'public code': lambda size: public_beit_adapter(settings, size, beit_adapter(settings, size).state_dict()),
        'mmlape': lambda size: beit_adapter(settings, size),
    }
    case = f'ViT-Adapter over BEiT, {settings.arch}: mmlape against the public code'
    models = Models(case, sides, equal=True, memory=True, settle=random_offsets, rules=OF_BEIT)
    return models.comparisons('beit', settings, tuple(sorted({-(-size // 32) * 32 for size in settings.sizes})))
