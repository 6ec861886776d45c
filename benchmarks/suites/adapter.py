"""ViT-Adapter: LaPE beside default in our code, folded BatchNorm, and the public code where a checkout is given."""

from torch import nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import adapter, random_offsets
from mmlape.lab.export.fusion import fuse_batch_norms


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, size (a multiple of 32, for the public code), dtype and work."""
    name = f'ViT-Adapter, {settings.arch}'
    sides = {'default': lambda size: adapter(settings), 'LaPE': lambda size: adapter(settings, pe_joining='lape')}
    forms = {'as trained': lambda size: adapter(settings), 'folded': lambda size: Folded(adapter(settings))}
    cases = [
        Models(f'{name}: LaPE against default PE', sides, memory=True),
        Models(f'{name}: BatchNorm folded', forms, works=('forward',)),
    ]
    if 'vit-adapter' in settings.checkouts:
        from benchmarks.public import public_adapter

        sides = {
            'public code': lambda size: public_adapter(settings, adapter(settings).state_dict()),
            'mmlape': lambda size: adapter(settings),
        }
        case = f'{name}: mmlape against the public code'
        cases.append(Models(case, sides, equal=True, memory=True, settle=random_offsets))
    sizes = tuple(sorted({-(-size // 32) * 32 for size in settings.sizes}))
    return [one for models in cases for one in models.comparisons('adapter', settings, sizes)]


class Folded(nn.Module):
    """A model in evaluation mode for good, with its BatchNorm folded."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model.eval()
        self.context = fuse_batch_norms(self.model)
        self.context.__enter__()

    def forward(self, images):
        return self.model(images)
