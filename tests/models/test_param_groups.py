"""The groups of a script are those of our constructor in a config; `tests/engine/test_paramwise.py` has the rules."""

import pytest
import torch
from config_helpers import ROOT
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from torch import nn

import mmlape
from mmlape.errors import ConfigError
from mmlape.models import TimmViT, ViTAdapter

ARCH = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=48)
RECIPE = Config.fromfile(ROOT / 'configs/_base_/default_runtime.py').optim_wrapper


class Segmentor(nn.Module):
    """A backbone below a head, in plain PyTorch."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone, self.head = backbone, nn.Conv2d(24, 5, 1)


def adapter() -> ViTAdapter:
    return ViTAdapter(
        arch=ARCH, img_size=64, conv_inplane=8, pe_joining='lape', pe_type=['learnable', 'rpe'], frozen_stages=1
    )


def timms() -> TimmViT:
    return TimmViT('vit_small_patch16_224', model_args=dict(embed_dim=24, depth=4, num_heads=3), pe_joining='lape')


@pytest.mark.parametrize('layer_decay', [None, 0.75])
@pytest.mark.parametrize('build', [adapter, lambda: Segmentor(adapter()), timms], ids=['adapter', 'segmentor', 'timm'])
def test_groups_are_those_of_the_constructor(build, layer_decay):
    model, lr, weight_decay = build(), RECIPE.optimizer.lr, RECIPE.optimizer.weight_decay
    ours = torch.optim.AdamW(mmlape.param_groups(model, lr, weight_decay, layer_decay))
    cfg = RECIPE.to_dict()
    cfg['paramwise_cfg'] |= {} if layer_decay is None else dict(layer_decay_rate=layer_decay)
    theirs = build_optim_wrapper(model, cfg).optimizer
    names = {id(p): name for name, p in model.named_parameters()}

    def settings(optimizer):
        groups = optimizer.param_groups
        assert len({(group['lr'], group['weight_decay']) for group in groups}) == len(groups)
        return {
            names[id(p)]: (group['lr'], group['weight_decay'], n)
            for n, group in enumerate(groups)
            for p in group['params']
        }

    assert settings(ours) == settings(theirs) and len(settings(ours)) == sum(
        len(g['params']) for g in ours.param_groups
    )
    assert set(settings(ours)) == {name for name, p in model.named_parameters() if p.requires_grad}
    assert len({decay for _, decay, _ in settings(ours).values()}) == 2


def test_other_rules_replace_the_recipes():
    groups = mmlape.param_groups(
        nn.Linear(2, 2), 1.0, 0.1, paramwise_cfg=dict(custom_keys=dict(bias=dict(lr_mult=2.0)))
    )
    assert [group['lr'] for group in groups] == [1.0, 2.0] and all(group['weight_decay'] == 0.1 for group in groups)


def test_parameters_of_equal_options_are_updated_as_apart():
    """To the bit; options that are no numbers tell groups apart, too."""
    rules = dict(
        norm_decay_mult=0.0, custom_keys=dict(bias=dict(lr_mult=0.5, betas=(0.5, 0.6)), fc1=dict(betas=(0.5, 0.6)))
    )
    models = [ViTAdapter(arch=ARCH, img_size=64, conv_inplane=8, pe_joining='lape') for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    together = mmlape.param_groups(models[0], 0.1, 0.05, 0.75, rules)
    place = {id(p): group for group in together for p in group['params']}
    other = dict(zip((id(p) for p in models[1].parameters()), models[0].parameters(), strict=True))
    apart = [dict(place[id(other[id(p)])], params=[p]) for p in models[1].parameters() if p.requires_grad]
    assert len(together) < len(apart) / 3 and {group.get('betas') for group in together} == {None, (0.5, 0.6)}
    for model, groups in zip(models, (together, apart)):
        optimizer = torch.optim.AdamW(groups)
        for step in range(3):
            for number, parameter in enumerate(model.parameters()):
                parameter.grad = torch.randn(
                    parameter.shape, generator=torch.Generator().manual_seed(step + 7 * number)
                )
            optimizer.step()
    for one, two in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, two)


def test_wrong_rules_are_errors():
    with pytest.raises(ConfigError, match='^paramwise_cfg has no norm_decay: its keys are'):
        mmlape.param_groups(nn.Linear(2, 2), 1.0, 0.1, paramwise_cfg=dict(norm_decay=0))
    with pytest.raises(ConfigError, match='need a backbone with get_layer_depth'):
        mmlape.param_groups(nn.Linear(2, 2), 1.0, 0.1, layer_decay=0.75)
