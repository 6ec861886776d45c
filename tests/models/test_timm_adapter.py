"""``TimmViTAdapter``: ViT-Adapter's own numbers over DeiT, both modes, both forms of patch 14; DINOv3's are golden."""

import re

import pytest
import torch
import torch.nn.functional as F
from model_helpers import randomise
from timm_helpers import known

from mmlape.errors import DataError
from mmlape.models import TimmViTAdapter, ViTAdapter
from mmlape.models.adapter.layers import Extractor

TINY = dict(embed_dim=48, depth=4, num_heads=4)
PARTS = dict(conv_inplane=4, deform_num_heads=4)


def build(name='vit_small_patch16_dinov3', mode='read-only', vit=None, **kwargs):
    torch.manual_seed(0)
    vit = dict(model_name=name, model_args=TINY) | (vit or {})
    return TimmViTAdapter(vit, mode, **PARTS, **kwargs)


@pytest.mark.parametrize(
    ('source', 'changes'),
    [('last', {}), ('interaction', {}), ('interaction', dict(pe_joining='lape', patch_norm='dual'))],
)
def test_over_deit_it_is_vit_adapter(source, changes):
    """Without class token, at the size that the PE is made for, where nobody resizes it; also with LaPE and DPN."""
    vit = dict(img_size=64, with_prefix=False, **changes)
    model = randomise(build('deit_small_patch16_224', 'inject', vit, vit_feature_source=source)).double()
    arch = dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=192)
    options = dict(vit_feature_source=source, layer_scale_init_value=0, **PARTS, **changes)
    ours = ViTAdapter(arch, 64, **options).double().eval()
    weights = {key.removeprefix('vit.'): value for key, value in model.state_dict().items()}
    weights = {key.replace('patch_embed.norm.', 'patch_embed.norm1.'): value for key, value in weights.items()}
    row = torch.zeros_like(weights['pos_embed'][:, :1])
    ours.load_state_dict({**weights, 'pos_embed': torch.cat((row, weights['pos_embed']), 1)}, strict=True)
    for images in (torch.randn(2, 3, 64, 64).double(), torch.randn(1, 3, 50, 37).double()):
        for one, other in zip(model(images), ours(images), strict=True):
            torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


NAMED = (
    'aimv2_large_patch14_224', 'beit3_base_patch16_224', 'vit_base_patch14_reg1_tipsv2', 'vit_base_patch16_clip_224',
    'vit_base_patch16_radio_v3', 'vit_base_patch16_sapiens2', 'vit_base_patch16_siglip_512.v2_webli',
    'vit_base_patch16_xp_224', 'vit_pe_core_base_patch16_224', 'vit_pe_spatial_small_patch16_512',
    'vit_small_patch14_reg4_dinov2', 'vit_small_patch16_dinov3', 'vit_small_patch16_lingbot',
    'vit_small_patch16_rope_mixed_224', 'vit_tiny_patch16_dinov3_qkvb.eupe_lvd1689m',
)  # fmt: skip
"""Foundation models that a reader may look for; an older timm lacks some."""


@pytest.mark.parametrize('name', known(NAMED))
def test_read_only_reads_timms_features(name):
    """The tokens that the pyramid reads are timm's own, of the layers that are named, through the norm."""
    own = dict(model_args={**TINY, 'num_kv_heads': 2}) if name.endswith('sapiens2') else {}
    vit = dict(frozen=True, **own)
    model, read = randomise(build(name, vit=vit, layers=(0, 1, 3), vit_feature_source='last')), []
    for interaction in model.interactions:
        assert interaction.injector is None
        interaction.extractor.register_forward_pre_hook(lambda module, args: read.append(args[2]))
    images = torch.randn(1, 3, 64, 96)
    model(images)
    scaled = images if 'patch16' in name else F.interpolate(images, (56, 84), mode='bilinear', align_corners=False)
    options = dict(norm=True, intermediates_only=True, output_fmt='NLC')
    for one, other in zip(read, model.vit.forward_intermediates(scaled, [0, 1, 3], **options), strict=True):
        torch.testing.assert_close(one, other)


def test_patch_14():
    """A resampled stem is timm's, with the PE's grid kept; a resized image leaves the weights alone."""
    name = 'vit_small_patch14_reg4_dinov2'
    resized, resampled = build(name, patch14='resize-image'), build(name, patch14='resample-kernel')
    assert resized.vit.patch_embed.patch_size == (14, 14) and resampled.vit.patch_embed.patch_size == (16, 16)
    assert resized.grid == resampled.grid == (37, 37)
    for model in (resized, resampled):
        assert model.embed(torch.randn(1, 3, 64, 96))[2] == (4, 6) and model.grid_of((64, 96)) == (4, 6)
    assert build(name, vit=dict(frozen=True)).resizes_image
    assert not build(name).resizes_image and build(name).vit.patch_embed.patch_size == (16, 16)
    assert not build('vit_small_patch16_dinov3', patch14='resize-image').resizes_image
    assert build('vit_base_patch32_224', vit=dict(patch_size=16)).patch_size == 16


def test_two_grids_are_dinov2s_adapter():
    """At the size that the PE is made for, where nobody resizes it."""
    model = build('vit_small_patch14_dinov2', 'inject', dict(img_size=224), patch14='two-grids')
    model = randomise(model).double()
    arch = dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=192)
    ours = ViTAdapter(arch, 224, patch_size=14, with_cls_token=True, **PARTS).double().eval()
    weights = {key.removeprefix('vit.'): value for key, value in model.state_dict().items()}
    ours.load_state_dict({re.sub(r'ls([12])\.gamma', r'gamma\1', key): value for key, value in weights.items()})
    images = torch.randn(1, 3, 224, 224).double()
    for one, other in zip(model(images), ours(images), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
    with pytest.raises(DataError, match='multiples of 224'):
        model(images[..., :200])


def test_drop_path():
    """DINOv3's extractors have 0.3 whatever its ViT has, the others the ViT's; both take one of their own."""

    def rates(**kwargs):
        model = build(**kwargs)
        parts = [part for part in model.interactions.modules() if isinstance(part, Extractor)]
        found = {getattr(part.drop_path, 'drop_prob', 0.0) for part in parts}
        layers = [round(getattr(layer.drop_path1, 'drop_prob', 0.0), 6) for layer in model.vit.blocks]
        return found, layers[-1]

    vit = dict(drop_path_rate=0.2)
    assert (rates(), rates(vit=vit)) == (({0.3}, 0), ({0.3}, 0.2))
    assert (rates(mode='inject'), rates(mode='inject', vit=vit)) == (({0}, 0), ({0.2}, 0.2))
    assert rates(vit=vit, drop_path_rate=0.0) == ({0}, 0.2)
    assert rates(mode='inject', vit=vit, drop_path_rate=0.1) == ({0.1}, 0.2)


def test_layers():
    assert build().ranges == [(0, 1), (1, 2), (2, 3), (3, 4)]
    model = build(layers=(0, 2), vit_feature_source=None)
    assert model.ranges == [(0, 1), (1, 3)] and model.num_layers == 3
    assert build(layers=(0, -1), vit_feature_source=None).ranges == [(0, 1), (1, 4)]
    assert build().get_layer_depth('spm.stem.0.weight') == (5, 6)


def test_a_trained_vit_that_is_only_read_gets_gradients_everywhere():
    """No parameter is without use, which distributed training would refuse."""
    model = build(drop_path_rate=0.0)
    sum(out.square().sum() for out in model(torch.randn(2, 3, 64, 64))).backward()
    assert not [key for key, value in model.named_parameters() if value.grad is None]
