"""BatchNorm folded into convolutions for inference, against the model as it is."""

import pytest
import torch
from mmcv.cnn import ConvModule
from model_helpers import randomise
from torch import nn

from mmlape.lab.export.fusion import fuse_batch_norms
from mmlape.models import ViTAdapter
from mmlape.models.adapter.layers import SpatialPriorModule
from mmlape.projects import CeiT


def normed(model):
    """With statistics that are not those of the start."""
    for module in randomise(model).modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def batch_norms(model):
    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def test_an_adapter_folded_is_the_adapter(tiny_arch):
    model = normed(ViTAdapter(tiny_arch, 64, conv_inplane=8, deform_num_heads=3)).double()
    image, state = torch.randn(1, 3, 64, 96, dtype=torch.float64), list(model.state_dict())
    expected, modules = model(image), list(model.modules())
    with fuse_batch_norms(model):
        assert batch_norms(model) == 4  # those behind sums
        for mine, theirs in zip(model(image), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
    assert list(model.state_dict()) == state


def test_a_ceit_folded_is_the_ceit():
    arch = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32, stem_channels=8)
    model = normed(CeiT(arch, 32)).double()
    image, expected = (one := torch.randn(2, 3, 32, 48, dtype=torch.float64)), model(one)[0]
    with fuse_batch_norms(model):
        assert batch_norms(model) == 0
        torch.testing.assert_close(model(image)[0], expected, rtol=0, atol=1e-10)
    assert batch_norms(model) == 7


def test_conv_modules_of_heads_are_folded():
    head = nn.ModuleList([ConvModule(3, 4, 3, norm_cfg=dict(type='BN')), ConvModule(4, 5, 1)])
    normed(head)
    image = torch.randn(2, 3, 8, 8)
    expected = head[0](image)
    with fuse_batch_norms(head):
        assert batch_norms(head) == 0
        torch.testing.assert_close(head[0](image), expected)


def test_only_a_norm_right_behind_its_convolution_is_folded():
    norm_first = ConvModule(3, 4, 3, norm_cfg=dict(type='BN'), order=('norm', 'conv', 'act'))
    apart = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.BatchNorm2d(4))
    for model in (normed(norm_first), normed(apart)):
        with fuse_batch_norms(model):
            assert batch_norms(model) == 1


def test_a_model_in_training_is_refused_and_left_alone():
    model = SpatialPriorModule(4, 8)
    modules = list(model.modules())
    with pytest.raises(ValueError, match='call model.eval'), fuse_batch_norms(model):
        pass
    model.eval()
    with pytest.raises(RuntimeError, match='inside'), fuse_batch_norms(model):
        raise RuntimeError('inside')
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
