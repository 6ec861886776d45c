"""Every family of timm's plain ViTs: our model with its file gives timm's own features, or the file is refused."""

import pytest
import timm
import torch
from checkpoint_helpers import vit_config
from model_helpers import randomise
from timm.models import deit, vision_transformer
from timm_helpers import families

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.converting import inspect
from mmlape.errors import CheckpointError
from mmlape.models import VisionTransformer
from mmlape.registry import MODELS

SHAPE = dict(embed_dim=48, depth=2, num_heads=4, img_size=64, patch_size=16, num_classes=10)
SIZES = (*SHAPE, 'mlp_ratio', 'weight_init')
ACTIVATIONS = {'quick_gelu': dict(type='mmpretrain.QuickGELU'), 'gelu_tanh': dict(type='GELU', approximate='tanh')}
TIMM = 'mmlape.TimmViT'
REFUSED = {
    'ParallelThingsBlock': TIMM,
    'ParallelScalingBlock': TIMM,
    'DiffParallelScalingBlock': TIMM,
    'diff': r'unexpected: blocks\.0\.attn\.lambda_q1',
    'GluMlp': r'wrong shape: blocks\.0\.mlp\.fc2\.weight',
}
NO_TRACE = ('ResPostBlock',)
"""Names and shapes are those of a plain ViT: the file cannot tell (docs/reference/layouts.md)."""


PLAIN = {'timm.models.vision_transformer': '_create_vision_transformer', 'timm.models.deit': '_create_deit'}
FAMILIES = families(PLAIN, SIZES, ['vit_*', 'deit*', 'flexivit*'])


@pytest.mark.parametrize('name', FAMILIES)
def test_a_family_of_timm(tmp_path, name):
    distilled, kwargs = FAMILIES[name]
    cls = deit.VisionTransformerDistilled if distilled else vision_transformer.VisionTransformer
    theirs = randomise(cls(**SHAPE, **kwargs))
    path = tmp_path / 'timm.pth'
    torch.save(theirs.state_dict(), path)
    used = {getattr(getattr(value, 'func', value), '__name__', value) for value in kwargs.values()}
    reasons = [reason for switch, reason in REFUSED.items() if switch in used]
    if TIMM in reasons:
        found = inspect(path)
        assert TIMM in found['to load it'] and 'give it as model_name' in found['notes']
        return
    config = vit_config(path, 4, norm_cfg=dict(type='LN', eps=theirs.blocks[0].norm1.eps))
    if reasons:
        with pytest.raises(CheckpointError, match=reasons[0]):
            build(config)
        return
    ours = build(dict(config, act_cfg=ACTIVATIONS.get(kwargs.get('act_layer'))))
    images = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        expected, features = theirs.double().forward_features(images), ours.double().eval()(images)[0]
    same = torch.allclose(features, expected, atol=1e-9, rtol=0)
    assert same is not bool(used & set(NO_TRACE)), (features - expected).abs().max()


def build(config):
    model = MODELS.build(dict(config, img_size=64, out_type='raw'))
    model.init_weights()
    return model


def test_a_table_without_class_row_gets_one_of_zeros(tmp_path):
    """DeiT III at its own size and at another one, and one whose grid the user gives."""
    theirs = timm.create_model('deit3_small_patch16_224', embed_dim=48, depth=2, num_heads=4)
    torch.save(theirs.state_dict(), path := tmp_path / 'deit3.pth')
    arch = dict(embed_dims=48, num_layers=2, num_heads=4, feedforward_channels=192)
    model = VisionTransformer(arch, 224, layer_scale_init_value=1e-6)
    report = load_backbone(model, str(path))
    assert report.new == ['pos_embed[cls_token] (zeros)'] and not report.resized
    assert not model.pos_embed[:, 0].any() and torch.equal(model.pos_embed[:, 1:], theirs.pos_embed)
    report = load_backbone(VisionTransformer(arch, 96, layer_scale_init_value=1e-6), str(path), grid=(7, 28))
    assert report.resized == {'pos_embed': '7x28 -> 6x6'}
