"""Norms, activations and stochastic depth against MMCV's; registries and messages against MMEngine's."""

from itertools import product

import pytest
import torch
from each import each
from mmcv.cnn import build_activation_layer, build_norm_layer
from mmcv.cnn.bricks import DropPath as TheirDropPath
from mmengine.registry import Registry as TheirRegistry
from torch import nn

from mmlape.kinds import BACKBONES, Registry
from mmlape.models import VisionTransformer
from mmlape.models.layers.transformer_layer import DropPath
from mmlape.models.named_layers import ACTIVATIONS, NORMS, build_activation, build_norm
from mmlape.registry import MODELS

OPTIONS = ({}, dict(eps=1e-3), dict(requires_grad=False))


def test_norms_are_mmcvs():
    for options, kind in each(product(OPTIONS, [*NORMS, 'IN', nn.LayerNorm])):
        cfg = dict(type=kind, **options, **(dict(num_groups=2) if kind == 'GN' else {}))
        ours, theirs = build_norm(cfg, 6), build_norm_layer(cfg, 6)[1]
        assert isinstance(theirs, type(ours)) and repr(ours) == repr(theirs) and ours.eps == theirs.eps
        assert [(name, p.requires_grad) for name, p in ours.named_parameters()] == [
            (name, p.requires_grad) for name, p in theirs.named_parameters()
        ]


def test_activations_are_mmcvs():
    for kind in each([*ACTIVATIONS, 'HSwish']):
        assert repr(build_activation(dict(type=kind))) == repr(build_activation_layer(dict(type=kind)))


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_drop_path_is_mmcvs_with_the_same_random_numbers(dtype):
    x, outs = torch.randn(64, 5, 3, dtype=dtype), []
    for module in (DropPath(0.3), TheirDropPath(0.3)):
        torch.manual_seed(5)
        outs.append((module.train()(x), torch.rand(1)))
        assert module.eval()(x) is x
    assert torch.equal(outs[0][0], outs[1][0]) and torch.equal(outs[0][1], outs[1][1])
    assert 0 < (outs[0][0] == 0).all(dim=(1, 2)).sum() < 64


def test_a_registry_has_mmengines_methods():
    for registry in (Registry('thing', 'mmlape.models.position'), TheirRegistry('thing', locations=[])):

        @registry.register_module('one')
        class One:
            def __init__(self, x=1):
                self.x = x

        @registry.register_module()
        class Two:
            pass

        registry.register_module(name=['three', 'four'], module=Two)
        assert registry.module_dict == {'one': One, 'Two': Two, 'three': Two, 'four': Two}
        assert registry.get('one') is One and registry.get('five') is None
        assert registry.build(dict(type='one', x=2)).x == 2
        with pytest.raises(KeyError, match='registered'):
            registry.register_module('one', module=Two)
        registry.register_module('one', force=True, module=Two)
        assert registry.get('one') is Two
        with pytest.raises(KeyError):
            registry.build(dict(type='five'))


def test_models_are_registered_by_the_list_of_public_names():
    assert MODELS.module_dict is BACKBONES.module_dict
    assert MODELS.get('VisionTransformer') is MODELS.get('mmlape.VisionTransformer') is VisionTransformer
    assert BACKBONES.get('no such model') is None
