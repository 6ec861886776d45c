"""``TimmViT``: timm's features for every family of its plain ViTs; our ViT has them too, see test_timm.py."""

import pytest
import torch
from model_helpers import randomise
from timm.optim import param_groups_layer_decay
from timm_helpers import families

import mmlape
from mmlape.errors import ConfigError
from mmlape.models import TimmViT
from mmlape.models.position.base import position_parameters
from mmlape.param_rules import layer_depths
from mmlape.projects.pe_figures.position import correlation_maps

TINY = dict(embed_dim=48, depth=3, num_heads=4)
SIZES = (*TINY, 'img_size', 'patch_size', 'mlp_ratio', 'weight_init', 'ref_feat_shape', 'num_kv_heads')
CREATED = {
    'timm.models.vision_transformer': '_create_vision_transformer',
    'timm.models.deit': '_create_deit',
    'timm.models.eva': '_create_eva',
}


FAMILIES = sorted(families(CREATED, SIZES))


def build(name, sizes=None, **kwargs):
    torch.manual_seed(0)
    heads = {'num_kv_heads': 2} if name.endswith('sapiens2') else {}
    return TimmViT(name, model_args={**TINY, **heads, **(sizes or {})}, **kwargs)


@pytest.mark.parametrize('name', FAMILIES)
def test_a_family_has_timms_features(name):
    """In float64, at a size of complete patches, with every layer's prefix tokens."""
    model = randomise(build(name, out_indices=(0, 2), out_type='raw')).double()
    side = model.patch_size
    images = torch.randn(1, 3, 2 * side, 3 * side, dtype=torch.float64)
    options = dict(norm=True, intermediates_only=True, output_fmt='NLC')
    with torch.no_grad():
        ours, theirs = model(images), model.vit.forward_intermediates(images, [0, 2], **options)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape[1] == 6 + model.num_prefix
        assert torch.equal(one[:, model.num_prefix :], other)


@pytest.mark.parametrize('name', ['vit_small_patch14_reg4_dinov2', 'eva02_tiny_patch14_224'])
@pytest.mark.parametrize('joining', ['lape', 'unshared'])
def test_switches_are_the_functions(name, joining):
    """``pe_joining`` and ``patch_norm`` are ``add_lape`` and ``add_dual_patchnorm``; layers run one by one here."""
    model = randomise(build(name, out_indices=(0, 1), out_type='raw', pe_joining=joining, patch_norm='dual')).double()
    plain = build(name, out_indices=(0, 1), out_type='raw').vit
    mmlape.add_dual_patchnorm(mmlape.add_lape(plain, joining))
    plain.double().eval().load_state_dict(model.vit.state_dict())
    side = model.patch_size
    images = torch.randn(2, 3, 2 * side + 1, 3 * side, dtype=torch.float64)
    options = dict(norm=True, intermediates_only=True, output_fmt='NLC')
    with torch.no_grad():
        ours, theirs = model(images), plain.forward_intermediates(images, [0, 1], **options)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one[:, model.num_prefix :], other)
    assert not {'vit.pos_embed2', 'vit.pos_embed'} & set(model.state_dict()) or joining == 'lape'
    decayed = [key for key, parameter in model.named_parameters() if key not in position_parameters(model)]
    assert not [key for key in decayed if 'pos_embed' in key]
    assert model.part_of('vit.blocks.1.attn.proj.weight') == 'blocks.1'


def test_outputs():
    """Of other layers, without the norm, and without the tokens before the patches."""
    images = torch.randn(2, 3, 32, 48)
    model = build('vit_small_patch14_reg4_dinov2', out_indices=(-2, 1)).eval()
    assert [tuple(out.shape) for out in model(images)] == [(2, 48, 3, 4)] * 2 and model.num_layers == 2
    raw, plain = (
        build('vit_small_patch14_reg4_dinov2', out_type='raw', final_norm=norm).eval()(images)[0]
        for norm in (True, False)
    )
    torch.testing.assert_close(torch.nn.functional.layer_norm(plain, (48,), eps=1e-6), raw)
    assert build('vit_small_patch14_reg4_dinov2', out_type='raw', with_prefix=False)(images)[0].shape == (2, 12, 48)


@pytest.mark.parametrize('dtype', [None, 'bf16'])
def test_a_frozen_vit_is_only_read(dtype):
    """No gradients, evaluation mode, no activations kept, half precision inside only."""
    model = build('vit_small_patch16_dinov3', frozen=True, frozen_dtype=dtype, drop_path_rate=0.5)
    model.train()
    assert model.training and not any(part.training for part in model.vit.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    images = torch.randn(2, 3, 32, 48, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: pytest.fail('an activation is kept'), lambda x: x):
        out = model(images)[0]
    assert out.dtype == torch.float32 and not out.requires_grad
    full = build('vit_small_patch16_dinov3').eval()(images)[0]
    torch.testing.assert_close(out, full, atol=0.1 if dtype else 0, rtol=0.1 if dtype else 0)
    assert torch.equal(out, full) == (dtype is None)


DECAYED = (
    'vit_small_patch14_reg4_dinov2',
    'vit_small_patch16_dinov3',
    'vit_base_patch16_clip_224',
    'eva02_tiny_patch14_224',
)


@pytest.mark.parametrize('name', DECAYED)
def test_layer_decay_is_timms(name):
    model = build(name)
    model.vit.head = torch.nn.Linear(48, 2)  # timm's last group
    groups = param_groups_layer_decay(model.vit, layer_decay=0.5)
    theirs = {id(parameter): group['lr_scale'] for group in groups for parameter in group['params']}
    depth_of = layer_depths(model)
    for key, parameter in model.named_parameters():
        depth, depths = depth_of(key)
        assert theirs[id(parameter)] == 0.5 ** (depths - 1 - depth), key


def test_parts_and_depths():
    model = build('vit_small_patch14_reg4_dinov2')
    parts = {key: model.part_of(key) for key in model.state_dict()}
    assert parts['vit.pos_embed'] == parts['vit.reg_token'] == parts['vit.cls_token'] == 'position'
    assert parts['vit.patch_embed.proj.weight'] == 'patch_embed'
    assert parts['vit.blocks.2.ls1.gamma'] == 'blocks.2' and parts['vit.norm.weight'] == 'blocks.2'
    assert model.get_layer_depth('backbone.vit.blocks.2.ls1.gamma', 'backbone.') == (3, 5)
    assert list(model.compile_units()) == list(model.vit.blocks)


def test_no_position_encoding_to_look_at():
    model = build('vit_small_patch16_dinov3')
    with pytest.raises(ConfigError, match='TimmViT has no position encoding that can be drawn'):
        next(correlation_maps(model, (2, 2)))
