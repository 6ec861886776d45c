"""Parameters of position encodings do not decay unless a config says so: of every kind, in every backbone."""

from functools import cache

import pytest
from each import each
from model_helpers import cvt, meta_device, tiny_detr
from optimizer_helpers import rates
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

ARCH = dict(embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=24)
KINDS = sorted(kind.name for kind in kinds(object))
BACKBONES = {
    'ViT': lambda **pe: VisionTransformer(ARCH, 32, 8, **pe),
    'distilled ViT': lambda **pe: DistilledVisionTransformer(ARCH, 32, 8, **pe),
    'adapter': lambda **pe: ViTAdapter(ARCH, 32, conv_inplane=8, deform_num_heads=2, **pe),
    'T2T-ViT': lambda **pe: T2TViT(dict(ARCH, token_dims=8), 32, **pe),
    'CeiT': lambda **pe: CeiT(dict(ARCH, stem_channels=8), 32, **pe),
    'CVT': lambda **pe: cvt(ARCH, 32, 8, **pe),
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
            VisionTransformer(ARCH, 32, 8, pe_joining='unshared'): {'pos_embed0', 'pos_embed1'},
            BACKBONES['Swin'](pe_type='learnable', pe_hierarchy='stage'): tables,
            VisionTransformer(ARCH, 32, 8, pe_type='rpe', pe_joining='lape'): {
                f'blocks.{layer}.attn.{name}'
                for layer in range(2)
                for name in ('relative_position_bias_table', 'pe_norm.weight', 'pe_norm.bias')
            },
        }
    for model, names in models.items():
        for others in ({}, dict(norm_decay_mult=0.3, bias_decay_mult=0.6)):  # of norms and biases in encodings, too
            found = decays(model, **others)
            assert {name for name, decay in found.items() if decay == 0} == {f'backbone.{name}' for name in names}
    normed = VisionTransformer(ARCH, 32, 8, pe_joining='lape')
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
    model = nn.ModuleDict(dict(backbone=VisionTransformer(ARCH, 32, 8, pe_type=['learnable', 'rpe', 'irpe'])))
    table = 'backbone.blocks.0.attn.rpe_k.lookup_table_weight'
    found = rates(model, position_lr_mult=10.0, custom_keys=dict(lookup_table=dict(decay_mult=1.0)))
    assert found[table] == pytest.approx((10, 0.05)) and found['backbone.pos_embed'] == pytest.approx((10, 0))
    assert found['backbone.blocks.0.attn.relative_position_bias_table'] == pytest.approx((10, 0))
    assert found['backbone.blocks.0.attn.qkv.weight'] == pytest.approx((1, 0.05))
    found = rates(model, position_lr_mult=10.0, layer_decay_rate=0.5, custom_keys=dict(pos_embed=dict(lr_mult=3.0)))
    assert found['backbone.pos_embed'] == pytest.approx((3 / 8, 0)) and found[table] == pytest.approx((10 / 4, 0))
