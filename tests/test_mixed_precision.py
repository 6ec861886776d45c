"""Training in bfloat16 on the CPU: what every mini recipe computes, beside float32."""

import numpy as np
import pytest
import torch

from benchmarks.comparison import Settings
from benchmarks.models import complete_model
from benchmarks.suites.models import MINI
from mmlape.engine.optim import BFloat16OptimWrapper
from mmlape.models import VisionTransformer


@pytest.mark.parametrize('config', MINI)
def test_losses_and_gradients_are_those_of_float32(config):
    """Mask R-CNN's compiled ops know no bfloat16; the wrapper hands them float32."""
    model, batch, wrapper = complete_model(config, 'lape', Settings(arch='mini', batch=2), 64)
    model.train()
    found = []
    for kind in (type(wrapper), BFloat16OptimWrapper):
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
    assert loss != exact and loss == pytest.approx(exact, rel=0.01)
    assert torch.cosine_similarity(gradient, expected, dim=0) > 0.9
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize('joining', ['default', 'lape'])
def test_gradients_under_autocast_are_near_whatever_the_joining(joining):
    """The residual stream is float32 without a PE at the input, too; otherwise a third of a gradient is lost."""
    arch = dict(embed_dims=128, num_layers=6, num_heads=4, feedforward_channels=256)
    model = VisionTransformer(arch, 128, 8, with_cls_token=False, out_type='featmap', pe_joining=joining)
    image = torch.randn(4, 3, 128, 128)
    found = []
    for half in (False, True):
        model.zero_grad()
        with torch.autocast('cpu', torch.bfloat16, enabled=half):
            out = model(image)[0]
        torch.manual_seed(1)
        (out.float() * torch.randn(out.shape)).sum().backward()
        found.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    apart = {name: ((found[1][name] - exact).norm() / exact.norm()).item() for name, exact in found[0].items()}
    assert max(apart.values()) < 0.05, max(apart, key=apart.get)
