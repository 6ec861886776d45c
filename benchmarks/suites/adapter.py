"""ViT-Adapter: the public code, LaPE, Dual PatchNorm, timm's plain ViT, PyTorch's attention, folded BatchNorm."""

from collections.abc import Callable
from functools import partial
from unittest import mock

from torch import nn

from benchmarks.comparison import BACKWARD, STEP, Comparison, Settings, of_models, same_function
from benchmarks.models import adapter, random_offsets, timm_vit, vit
from benchmarks.public import public_adapter
from mmlape.models.adapter import deform_attn

# ratios to the first side, in time and in memory, that are the goals on a GPU
LAPE = {'LaPE': (1.005, 1.0025)}
DUAL = {'Dual PatchNorm': (1.01, 1.01)}
OURS = {'mmlape': (0.5, 0.6)}


def comparisons(settings: Settings) -> list[Comparison]:
    """Return a comparison of each case and work, those with goals first; the size is a multiple of 32."""
    ours: Callable[..., Callable[[], nn.Module]] = partial(partial, adapter, settings)
    head, both = settings.title('ViT-Adapter'), (BACKWARD, 'forward')
    lape = {'default': ours(), 'LaPE': ours(pe_joining='lape')}
    dual = {'plain stem': ours(), 'Dual PatchNorm': ours(patch_norm='dual')}
    bases = {
        "timm's plain ViT": lambda: timm_vit(settings, vit(settings).state_dict()),
        'our plain ViT': partial(vit, settings),
        'ViT-Adapter': ours(),
        'ViT-Adapter, PyTorch attention': lambda: PlainAttention(ours()()),
    }
    folded = {'as trained': ours(), 'folded': lambda: with_folded_norms(ours()())}
    public = {'public code': lambda: public_adapter(settings, ours()().state_dict()), 'mmlape': ours()}
    options = dict(goals=OURS, memory=True, note=lambda: same_function(settings, public, random_offsets))
    beside_public = of_models(settings, f'{head}: mmlape over the public code', public, both, **options)
    return [
        *(beside_public if settings.public else ()),
        *of_models(settings, f'{head}: LaPE over default', lape, (STEP, BACKWARD), goals=LAPE, memory=True),
        *of_models(settings, f"{head}: beside timm's plain ViT and PyTorch attention", bases, both),
        *of_models(settings, f'{head}: Dual PatchNorm over plain', dual, (STEP,), goals=DUAL),
        *of_models(settings, f'{head}: BatchNorm folded', folded, ('forward',)),
    ]


class PlainAttention(nn.Module):
    """An adapter whose deformable attention is PyTorch's sampling."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images):
        with mock.patch.object(deform_attn, 'available_backends', lambda *args: ['pytorch']):
            return self.model(images)


def with_folded_norms(model: nn.Module) -> nn.Module:
    """Fold the BatchNorms of a model for good; returns it, in evaluation mode."""
    from mmcv.cnn import fuse_conv_bn

    return fuse_conv_bn(model.eval())
