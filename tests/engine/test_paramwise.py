"""Rules of learning rate and weight decay through MMEngine's own builder: by layer, and of position encodings."""

import re
from functools import cache

import pytest
import torch
from config_helpers import MINI, find, load, method_of
from each import each
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from model_helpers import cvt, meta_device, tiny_detr
from optimizer_helpers import RATE, WRAPPER, expected, rates
from torch import nn

from mmlape.errors import ConfigError
from mmlape.models import (
    DistilledVisionTransformer,
    SwinTransformer,
    TimmViT,
    TimmViTAdapter,
    VisionTransformer,
    ViTAdapter,
)
from mmlape.models.position import kinds, position_parameters
from mmlape.projects import CeiT, T2TViT

ARCH = dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=96)
ADAPTER = dict(type='mmlape.ViTAdapter', arch=ARCH, img_size=64, conv_inplane=8, pe_joining='lape')


def segmentor(backbone: dict) -> nn.Module:
    cfg = load(find('upernet', 'tiny', '-lape')).model.to_dict()
    cfg.update(backbone=backbone, auxiliary_head=None)
    cfg['decode_head'].update(in_channels=[48] * 4, channels=8)
    init_default_scope('mmseg')
    return MODELS.build(cfg)


def detector(backbone: dict) -> nn.Module:
    cfg = Config(load(find('mask_rcnn', 'tiny', '-lape')).model.to_dict())
    cfg.backbone = backbone
    cfg.neck.in_channels = [48] * 4
    init_default_scope('mmdet')
    return MODELS.build(cfg)


def classifier(backbone: dict) -> nn.Module:
    init_default_scope('mmpretrain')
    head = dict(type='LinearClsHead', num_classes=5, in_channels=48)
    return MODELS.build(dict(type='ImageClassifier', backbone=backbone, head=head))


@pytest.mark.parametrize(
    ('build', 'backbone'),
    [
        (segmentor, ADAPTER),
        (detector, ADAPTER),
        (
            classifier,
            dict(type='mmlape.VisionTransformer', arch=ARCH, img_size=32, pe_joining='lape', patch_norm='dual'),
        ),
        (classifier, dict(type='mmlape.DistilledVisionTransformer', arch=ARCH, img_size=32)),
    ],
    ids=['segmentor', 'detector', 'classifier', 'distilled'],
)
def test_each_parameter_trains_at_its_layers_rate(build, backbone):
    found = rates(build(backbone))
    assert {name: rate for name, (rate, _) in found.items()} == pytest.approx({n: expected(n) for n in found})
    assert {expected(name) for name in found} == {1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125}
    for name, (rate, decay) in found.items():
        if '.pe_norm.' in name:
            assert rate == found[name.replace('pe_norm', 'norm1')][0] and decay == 0.0


FIRST = tuple(
    f'decode_head.{part}' for part in ('mask_embed', 'cls_embed', 'level_embed', 'query_embed', 'query_feat')
)
PUBLIC = dict(layer_decay_rate=RATE, flat_decay_mult=0.0, position_decay_mult=1.0)


def public_rule(name: str, dims: int, segments: bool) -> tuple[float, float]:
    """(share of the rate, weight decay) of ViT-Adapter's public constructor, by its facts: ids 0 to 5 for 4 layers."""
    layer = re.match(r'backbone\.blocks\.(\d+)\.', name)
    start = (*(f'backbone.{part}' for part in ('cls_token', 'pos_embed', 'patch_embed')), *(FIRST if segments else ()))
    depth = int(layer[1]) + 1 if layer else 0 if name.startswith(start) else 5
    return RATE ** (5 - depth), 0.0 if dims == 1 or name.endswith('.bias') else 0.05


@pytest.mark.parametrize('method', ['mask2former', 'mask_rcnn'])
def test_rates_are_those_of_the_public_constructor(method):
    """Its two forms: in segmentors the head's queries and output layers are at the embeddings' rate."""
    segments = method == 'mask2former'
    cfg = load(next(path for path in MINI if method_of(path) == method and path.stem.endswith('ade') == segments))
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    found = rates(model, **PUBLIC, **(dict(layer_decay_first=list(FIRST)) if segments else {}))
    expected = {name: public_rule(name, p.ndim, segments) for name, p in model.named_parameters()}
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert values == pytest.approx(expected[name]), name
    assert found['backbone.pos_embed'] == (RATE**5, 0.05) and found['backbone.level_embed'] == (1.0, 0.05)


# rules compose


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.backbone = nn.ModuleDict(dict(
            conv=nn.Conv2d(8, 8, 3, groups=8), proj=nn.Linear(8, 8), norm=nn.LayerNorm(8), frozen=nn.Linear(8, 8),
        ))  # fmt: skip
        self.backbone.frozen.requires_grad_(False)
        self.head = nn.Linear(8, 8)
        self.head.norm = self.backbone.norm  # shared


def small(**paramwise) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay, as shares of the full ones."""
    found = rates(Small(), **paramwise)
    return {name: (round(rate, 9), round(decay / 0.05, 9)) for name, (rate, decay) in found.items()}


def test_keys_decide_only_what_they_set():
    found = small(
        norm_decay_mult=0.0,
        bias_lr_mult=2.0,
        custom_keys={'backbone': dict(lr_mult=0.1), 'bias': dict(decay_mult=0.5), '.cls_token': dict(lr_mult=3.0)},
    )
    assert found == {
        'cls_token': (3, 1),
        'backbone.conv.weight': (0.1, 1), 'backbone.conv.bias': (0.1, 0.5),
        'backbone.proj.weight': (0.1, 1), 'backbone.proj.bias': (0.1, 0.5),
        'backbone.norm.weight': (0.1, 0), 'backbone.norm.bias': (0.1, 0.5),
        'head.weight': (1, 1), 'head.bias': (2, 0.5),
    }  # fmt: skip


@pytest.mark.parametrize(
    'norm',
    [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm2d(8), nn.SyncBatchNorm(8), nn.InstanceNorm2d(8, affine=True)],
)
def test_every_norm_is_one(norm):
    """Its scale and its shift have the decay of norms, and its shift the rate of norms, not of biases."""
    model = nn.Sequential(nn.Linear(8, 8), norm)
    found = rates(model, norm_decay_mult=0.5, bias_decay_mult=0.0, bias_lr_mult=2.0)
    assert found == {'0.weight': (1, 0.05), '0.bias': (2, 0), '1.weight': (1, 0.025), '1.bias': (1, 0.025)}


def test_the_longest_key_that_sets_a_value_decides_it():
    keys = dict(backbone=dict(lr_mult=0.1, decay_mult=1.0), bias=dict(decay_mult=0.0))
    keys |= {'backbone.norm': dict(decay_mult=0.0), 'backbone.proj': dict(lr_mult=0.5)}
    found = small(custom_keys=keys)
    assert found['backbone.proj.weight'] == (0.5, 1), 'not the product of both keys'
    assert found['backbone.norm.weight'] == (0.1, 0)
    assert found['backbone.proj.bias'] == (0.5, 1), "'backbone' sets a decay and is longer than 'bias'"
    assert found['head.bias'] == (1, 0)


@pytest.mark.parametrize(
    'paramwise',
    [
        dict(bias_lr_mult=2.0, bias_decay_mult=0.5, norm_decay_mult=0.25, dwconv_decay_mult=0.125),
        dict(flat_decay_mult=0.5),
        dict(flat_decay_mult=0.5, bias_decay_mult=0.25, custom_keys=dict(proj=dict(lr_mult=0.5, decay_mult=2.0))),
        dict(
            custom_keys={'bias': dict(lr_mult=0.5), 'norm': dict(lr_mult=0.25), 'conv.weight': dict(betas=(0.5, 0.6))}
        ),
    ],
)
def test_rules_that_do_not_meet_are_mmengines(paramwise):
    model, found = Small(), {}
    for kind in ('mmlape.ParamwiseOptimWrapperConstructor', 'DefaultOptimWrapperConstructor'):
        wrapper = dict(WRAPPER, constructor=kind, paramwise_cfg=dict(paramwise, bypass_duplicate=True))
        groups = build_optim_wrapper(model, wrapper).optimizer.param_groups
        found[kind] = {
            id(p): (group['lr'], group['weight_decay'], group['betas']) for group in groups for p in group['params']
        }
    ours, theirs = found.values()
    assert ours == theirs


def test_layer_decay_multiplies_what_a_key_sets():
    model = classifier(dict(type='mmlape.VisionTransformer', arch=ARCH, img_size=32, pe_joining='lape'))
    alone = rates(model)
    both = rates(
        model, layer_decay_rate=RATE, custom_keys={'backbone': dict(lr_mult=0.1), '.norm': dict(decay_mult=0)}
    )
    for name, (rate, decay) in both.items():
        share = 0.1 if name.startswith('backbone.') else 1.0
        assert rate == pytest.approx(share * alone[name][0]), name
        assert decay == (0 if '.norm' in name or name == 'backbone.pos_embed' else 0.05), name


# position encodings do not decay unless a config says so: of every kind, in every backbone

NARROW = dict(embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=24)
KINDS = sorted(kind.name for kind in kinds(object))
BACKBONES = {
    'ViT': lambda **pe: VisionTransformer(NARROW, 32, 8, **pe),
    'distilled ViT': lambda **pe: DistilledVisionTransformer(NARROW, 32, 8, **pe),
    'adapter': lambda **pe: ViTAdapter(NARROW, 32, conv_inplane=8, deform_num_heads=2, **pe),
    'T2T-ViT': lambda **pe: T2TViT(dict(NARROW, token_dims=8), 32, **pe),
    'CeiT': lambda **pe: CeiT(dict(NARROW, stem_channels=8), 32, **pe),
    'CVT': lambda **pe: cvt(NARROW, 32, 8, **pe),
    'Swin': lambda **pe: SwinTransformer(
        dict(embed_dims=24, depths=(1, 1), num_heads=(2, 2)), 32, window_size=4, out_type='featmap', **pe
    ),
    'DETR': lambda **pe: tiny_detr(layers=(1, 1), **pe),
}
# kinds with parameters that a family refuses
NOT_THERE = {('DETR', 'learnable'), ('DETR', 'cpe'), ('T2T-ViT', 'cpe'), ('distilled ViT', 'beit')}


def decays(model: nn.Module, **paramwise) -> dict[str, float]:
    """The weight decay of every trained parameter, as a share of the full one."""
    keys = dict(bias_lr_mult=1.0, **paramwise)
    return {name: decay / 0.05 for name, (_, decay) in rates(nn.ModuleDict(dict(backbone=model)), **keys).items()}


@cache
def names_of(family: str, pe_type: str) -> set[str]:
    with meta_device():
        return set(dict(BACKBONES[family](pe_type=pe_type, pe_joining='default').named_parameters()))


@pytest.mark.parametrize('family', BACKBONES)
def test_what_a_kind_adds_to_a_model_does_not_decay(family):
    without = names_of(family, 'none')
    for kind in each(KINDS):
        with meta_device():
            try:
                model = BACKBONES[family](pe_type=kind, pe_joining='default')
            except ConfigError:
                assert (family, kind) in NOT_THERE or names_of('ViT', kind) == names_of('ViT', 'none')
                continue
        found = decays(model)
        added = {name for name in found if name.removeprefix('backbone.') not in without}
        assert bool(added) == (names_of('ViT', kind) != names_of('ViT', 'none'))
        assert {name for name, decay in found.items() if decay == 0} == added
        if family == 'ViT':
            assert set(decays(model, position_decay_mult=0.5).values()) == ({0.5, 1.0} if added else {1.0})


def test_tables_of_each_layer_and_stage_do_not_decay():
    tables = {'absolute_pos_embed', 'absolute_pos_embed1'}
    with meta_device():
        models = {
            VisionTransformer(NARROW, 32, 8, pe_joining='unshared'): {'pos_embed0', 'pos_embed1'},
            BACKBONES['Swin'](pe_type='learnable', pe_hierarchy='stage'): tables,
            VisionTransformer(NARROW, 32, 8, pe_type='rpe', pe_joining='lape'): {
                f'blocks.{layer}.attn.{name}'
                for layer in range(2)
                for name in ('relative_position_bias_table', 'pe_norm.weight', 'pe_norm.bias')
            },
        }
    for model, names in models.items():
        for others in ({}, dict(norm_decay_mult=0.3, bias_decay_mult=0.6)):  # of norms and biases in encodings, too
            found = decays(model, **others)
            assert {name for name, decay in found.items() if decay == 0} == {f'backbone.{name}' for name in names}
    normed = VisionTransformer(NARROW, 32, 8, pe_joining='lape')
    assert not any('pe_norm' in name for name in position_parameters(normed)), 'norms of an absolute PE are norms'


@pytest.mark.parametrize(
    'build',
    [lambda vit: TimmViT(**vit), lambda vit: TimmViTAdapter(vit, conv_inplane=8, deform_num_heads=4)],
    ids=['TimmViT', 'TimmViTAdapter'],
)
def test_timms_tables_and_frequencies_do_not_decay(build):
    """timm's own ``no_weight_decay`` says which, beside the prefix tokens."""
    model = build(
        dict(model_name='vit_small_patch16_rope_mixed_ape_224', model_args=dict(embed_dim=48, depth=4, num_heads=4))
    )
    expected = {f'backbone.vit.{name}' for name in model.vit.no_weight_decay() if not name.endswith('token')}
    assert {name for name, decay in decays(model).items() if decay == 0} == expected
    assert expected == {'backbone.vit.pos_embed', 'backbone.vit.rope.freqs'}


def test_a_config_can_say_otherwise():
    model = nn.ModuleDict(dict(backbone=VisionTransformer(NARROW, 32, 8, pe_type=['learnable', 'rpe', 'irpe'])))
    table = 'backbone.blocks.0.attn.rpe_k.lookup_table_weight'
    found = rates(model, position_lr_mult=10.0, custom_keys=dict(lookup_table=dict(decay_mult=1.0)))
    assert found[table] == pytest.approx((10, 0.05)) and found['backbone.pos_embed'] == pytest.approx((10, 0))
    assert found['backbone.blocks.0.attn.relative_position_bias_table'] == pytest.approx((10, 0))
    assert found['backbone.blocks.0.attn.qkv.weight'] == pytest.approx((1, 0.05))
    found = rates(model, position_lr_mult=10.0, layer_decay_rate=0.5, custom_keys=dict(pos_embed=dict(lr_mult=3.0)))
    assert found['backbone.pos_embed'] == pytest.approx((3 / 8, 0)) and found[table] == pytest.approx((10 / 4, 0))
