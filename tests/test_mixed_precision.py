"""Training in bfloat16 on the CPU: what every mini recipe computes, beside float32."""

import numpy as np
import pytest
import torch

from benchmarks.comparison import Settings
from benchmarks.models import complete_model
from benchmarks.suites.models import MINI
from mmlape.engine.optim import BFloat16OptimWrapper


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
