"""Files of T2T-ViT and CeiT: recognised, described and loaded as exactly as those of a ViT."""

import pytest
import torch
import torch.nn.functional as F
from checkpoint_helpers import assert_same, save
from model_helpers import new_token_vit, randomise

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.converting import inspect
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.errors import CheckpointError
from mmlape.projects import CeiT, T2TViT


def model(cls, img_size=48, **kwargs):
    return randomise(new_token_vit(cls, img_size, **kwargs))


def public_file(path, source):
    """As the public code writes it, with a head: T2T-ViT's files have averaged weights only, CeiT's are DeiT's."""
    tensors = dict(source.state_dict())
    tensors |= {'head.weight': torch.randn(10, source.embed_dims), 'head.bias': torch.randn(10)}
    if isinstance(source, T2TViT):
        return save(path, tensors, 'state_dict_ema')
    return save(path, tensors, 'model', epoch=299)


def test_a_feature_map_drops_class_attention_and_says_so(tmp_path):
    source = model(CeiT)
    report = load_backbone(target := new_token_vit(CeiT, out_type='featmap'), public_file(tmp_path / 'a.pth', source))
    assert_same(target, source)
    assert {name.partition('.')[0] for name in report.dropped} == {'lca', 'pos_layer_embed', 'head'}
    with pytest.raises(CheckpointError, match='missing: lca'):
        load_backbone(new_token_vit(CeiT), save(tmp_path / 'b.pth', target.state_dict()))


def test_sinusoids_that_were_resized_are_loaded_as_they_are(tmp_path):
    """As the public code resizes them for other images: a refusal with the fix, which is what inspect prints."""
    source = model(T2TViT, 80, pe_joining='lape')
    small_table = new_token_vit(T2TViT, pe_joining='lape').pos_embed
    patches = F.interpolate(small_table[:, 1:].mT.unflatten(2, (3, 3)), (5, 5), mode='bicubic').flatten(2).mT
    source.pos_embed.copy_(torch.cat((small_table[:, :1], patches), dim=1))
    path = public_file(tmp_path / 'a.pth.tar', source)
    fix = r"pos_embed is not the table of pe_type='sincos1d' on a grid of 5x5.*pe_type='learnable' takes it as it is"
    with pytest.raises(CheckpointError, match=fix):
        load_backbone(new_token_vit(T2TViT, 80, pe_joining='lape'), path)
    target = new_token_vit(T2TViT, 80, pe_joining='lape', pe_type='learnable')
    load_backbone(target, path)
    image = torch.randn(1, 3, 80, 80)
    assert torch.equal(target.eval()(image)[0], source(image)[0])
    own = save(tmp_path / 'b.pth', source.state_dict(), meta={KEY: metadata_of(source).plain()})
    load_backbone(target := new_token_vit(T2TViT, 80, pe_joining='lape'), own)
    assert_same(target, source)
    assert inspect(own)['pe_type'] == 'sincos1d'
