"""The groups of a script are those of our constructor in a config; `tests/engine/test_paramwise.py` has the rules."""

import copy
from functools import partial

import pytest
import timm
import torch
from config_helpers import ROOT
from each import each
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from test_tools import FAMILIES
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.swa_utils import AveragedModel

import mmlape
from mmlape.models import TimmViT, ViTAdapter

ARCH = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=48)
RECIPE = Config.fromfile(ROOT / 'configs/_base_/schedules/adamw.py').optim_wrapper


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


class Forwarding(nn.Module):
    """A wrapper that passes on what it lacks, as compiled models and PEFT's do."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.inner = model

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


class LowRank(nn.Module):
    """PEFT's names in the place of a linear map."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.base_layer = layer


def replaced(model: nn.Module, change, *kinds: type) -> nn.Module:
    """Change all modules of some kinds, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kinds):
                setattr(parent, name, change(child))
    return model


def layers_of(model: nn.Module) -> tuple[type, ...]:
    vit = getattr(model, 'vit', model)
    lists = [getattr(vit, name) for name in ('blocks', 'layers') if hasattr(vit, name)]
    return tuple({type(layer) for own in lists for layer in own})


class Detector(nn.Module):
    """A model of the user's own, whose backbone has a name of its own."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.tower, self.head = nn.ModuleDict(dict(image=model)), nn.Linear(2, 2)


WRAPPERS = {
    'compiled': torch.compile,
    'averaged': AveragedModel,
    'data parallel': nn.DataParallel,
    'forwarding': lambda model: Forwarding(Forwarding(model)),
    'segmentor': Segmentor,
    'compiled in a segmentor': lambda model: Segmentor(torch.compile(model)),
    'compiled segmentor, averaged': lambda model: AveragedModel(torch.compile(Segmentor(model))),
    'detector': Detector,
    'in a sequence': lambda model: nn.Sequential(nn.Identity(), model),
    'layers compiled': lambda model: replaced(model, torch.compile, *layers_of(model)),
    'layers recomputed': lambda model: replaced(model, checkpoint_wrapper, *layers_of(model)),
    'low rank': lambda model: replaced(model, LowRank, nn.Linear, nn.Conv2d),
}


def timm_vit(joining: str | None = None) -> nn.Module:
    model = timm.create_model('vit_tiny_patch16_224', embed_dim=48, depth=3, num_heads=3, img_size=32)
    return model if joining is None else mmlape.add_lape(model, joining)


def rates(model: nn.Module) -> list[tuple[float, float]]:
    """The rate and the decay of each parameter, in the model's order."""
    groups = mmlape.param_groups(model, 1.0, 0.1, 0.5)
    found = {id(p): (group['lr'], group['weight_decay']) for group in groups for p in group['params']}
    return [found[id(p)] for p in model.parameters()]


BUILDERS = {**FAMILIES, **{f'timm, {name}': partial(timm_vit, name) for name in (None, 'lape', 'unshared', 'shared')}}
FAST = ('vit', 'swin', 'timm adapter', 'timm, unshared')


@pytest.mark.parametrize(
    'family', [pytest.param(name, marks=() if name in FAST else pytest.mark.release) for name in BUILDERS]
)
def test_a_wrapped_model_has_the_rates_of_the_model(family):
    model = BUILDERS[family]()
    expected = rates(model)
    assert len({rate for rate, _ in expected}) > 2 and min(expected)[0] < 0.5
    for name in each(WRAPPERS):
        found = rates(WRAPPERS[name](copy.deepcopy(model)))
        heads = len(found) - len(expected)
        assert found[: len(expected)] == expected and found[len(expected) :] == [(1.0, 0.1), (1.0, 0.0)][:heads]


def test_parametrised_tables_and_weights_have_the_rates_of_plain_ones():
    model = adapter()
    groups = mmlape.param_groups(replaced(model, weight_norm, nn.Linear), 1.0, 0.1, 0.5)
    found = {id(p): group['lr'] for group in groups for p in group['params']}
    assert found[id(model.blocks[3].attn.qkv.parametrizations.weight.original1)] == 0.5
    torch.nn.utils.parametrize.register_parametrization(model, 'pos_embed', nn.Identity())
    table = model.parametrizations.pos_embed.original.requires_grad_()
    groups = mmlape.param_groups(model, 1.0, 0.1, 0.5)
    found = {id(p): (group['lr'], group['weight_decay']) for group in groups for p in group['params']}
    assert found[id(table)] == (0.5**5, 0.0)


def test_timms_vits_have_the_rates_of_ours_over_them_and_tables_do_not_decay():
    for joining in each((None, 'lape', 'unshared', 'shared')):
        model, ours = timm_vit(joining), timms()
        names = [name for name, _ in model.named_parameters()]
        found = dict(zip(names, rates(model), strict=True))
        tables = [name for name in names if name.startswith('pos_embed')]
        assert tables and all(found[name] == (0.5**4, 0.0) for name in tables)
        assert found['blocks.0.attn.qkv.weight'] == (0.5**3, 0.1) and found['head.weight'] == (1.0, 0.1)
        assert found['patch_embed.proj.weight'] == (0.5**4, 0.1) and found['norm.weight'][0] == 0.5
        if joining == 'lape':
            assert found['blocks.2.pe_norm.weight'] == (0.5, 0.0)
            inside = {name: depth for name, depth in zip(names, rates(model)) if name.startswith('blocks.')}
            assert len(inside) == sum(name.startswith('vit.blocks.') for name, _ in ours.named_parameters()) * 3 // 4


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
