"""Mixed precision on the CPU, bfloat16 and float16: what every mini recipe and backbone computes, beside float32."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from mmengine.optim import OptimWrapper

from benchmarks.checks.training import RECIPES
from benchmarks.comparison import Settings
from benchmarks.models import complete_model
from mmlape.lab.training.optim import BFloat16OptimWrapper, float32_for_mmcv
from mmlape.models import SwinTransformer, VisionTransformer
from mmlape.projects import CeiT, T2TViT

ARCH = dict(embed_dims=128, num_layers=6, num_heads=4, feedforward_channels=256)
SMALL = dict(ARCH, num_layers=2)


def halves(first, for_a_release):
    """Cases of both halves; `make test` runs the first."""
    second = pytest.param(for_a_release, marks=pytest.mark.release)
    return pytest.mark.parametrize('half', [first, second], ids=str)


class Float16OptimWrapper(OptimWrapper):
    """Forward passes under float16 autocast. MMEngine's wrapper for it wants a GPU, where MMCV's ops know float16."""

    @contextmanager
    def optim_context(self, model):
        with super().optim_context(model), torch.autocast('cpu', torch.float16), float32_for_mmcv(model):
            yield


@halves(torch.bfloat16, torch.float16)
@pytest.mark.parametrize('config', list(RECIPES.values())[:3])
def test_losses_and_gradients_are_those_of_float32(config, half):
    """Mask R-CNN's compiled ops know no half precision on the CPU; the wrapper hands them float32."""
    model, batch, wrapper = complete_model(config, 'lape', Settings(size=64, arch='mini', batch=2))
    model.train()
    found = []
    for kind in (type(wrapper), BFloat16OptimWrapper if half == torch.bfloat16 else Float16OptimWrapper):
        model.zero_grad()
        torch.manual_seed(0)  # drop path and sampled proposals
        np.random.seed(0)
        with kind(wrapper.optimizer).optim_context(model):
            loss, _ = model.parse_losses(model(**model.data_preprocessor(batch, True), mode='loss'))
        loss.backward()
        gradients = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
        assert all(one.dtype == torch.float32 for one in gradients)
        found.append((float(loss), torch.cat(gradients)))
    (exact, expected), (loss, gradient) = found
    assert loss != exact and loss == pytest.approx(exact, rel=0.02)
    assert torch.cosine_similarity(gradient, expected, dim=0) > 0.9
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


LAPE = dict(pe_joining='lape')
SWIN = dict(embed_dims=48, depths=(2, 2, 2), num_heads=(2, 4, 8))
# name: (what builds it, by how much a gradient in bfloat16 may be off at most)
BACKBONES = {
    'ViT, default': (lambda: vit(ARCH), 0.05),
    'ViT, lape': (lambda: vit(ARCH, pe_joining='lape', patch_norm='dual'), 0.05),
    'ViT, irpe': (lambda: vit(SMALL, pe_type=dict(type='irpe', on='qkv')), 0.05),
    'Swin': (lambda: SwinTransformer(SWIN, 128, window_size=4, pe_type=['learnable', 'rpe'], **LAPE), 0.2),
    'T2T-ViT': (lambda: T2TViT(dict(SMALL, token_dims=32), 128, out_type='featmap', **LAPE), 0.1),
    'CeiT': (lambda: CeiT(dict(SMALL, stem_channels=16), 128, out_type='featmap', **LAPE), 0.1),
}


def vit(arch, **kwargs):
    return VisionTransformer(arch, 128, 8, with_cls_token=False, out_type='featmap', **kwargs)


@halves(torch.float16, torch.bfloat16)  # the first has the smaller tolerance
@pytest.mark.parametrize('name', BACKBONES)
def test_gradients_under_autocast_are_near_whatever_the_backbone(name, half):
    """The residual stream is float32, also behind a stem without a PE; otherwise a third of a gradient is lost."""
    build, most = BACKBONES[name]
    model, image, found = build().eval(), torch.randn(2, 3, 128, 128), []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast('cpu', half, enabled=enabled):
            out = model(image)[-1]
        torch.manual_seed(1)
        (out.float() * torch.randn(out.shape)).sum().backward()
        found.append({name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None})
    largest = max(exact.norm() for exact in found[0].values())
    apart = {
        name: ((found[1][name] - exact).norm() / exact.norm().clamp(min=1e-4 * largest)).item()
        for name, exact in found[0].items()
    }
    assert max(apart.values()) < (most if half == torch.bfloat16 else most / 8), max(apart, key=apart.get)
