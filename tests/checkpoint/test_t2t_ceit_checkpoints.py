"""Files of T2T-ViT and CeiT: recognised, described and loaded as exactly as those of a ViT."""

import re

import pytest
import torch
import torch.nn.functional as F
from checkpoint_helpers import assert_same, run_file, save
from mmengine.registry import MODELS
from model_helpers import TOKEN_ARCHS, new_token_vit, randomise

from mmlape.checkpoint import load_backbone, read_checkpoint
from mmlape.checkpoint.converting import convert, publish
from mmlape.checkpoint.inspecting import inspect
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.cli import main
from mmlape.errors import CheckpointError
from mmlape.models.position.base import resize_absolute
from mmlape.projects import CeiT, T2TViT

FAMILIES = pytest.mark.parametrize('cls', TOKEN_ARCHS)


def model(cls, img_size=48, **kwargs):
    return randomise(new_token_vit(cls, img_size, **kwargs))


def public_file(path, source):
    """As the public code writes it, with a head: T2T-ViT's files have averaged weights only, CeiT's are DeiT's."""
    tensors = dict(source.state_dict())
    tensors |= {'head.weight': torch.randn(10, source.embed_dims), 'head.bias': torch.randn(10)}
    if isinstance(source, T2TViT):
        return save(path, tensors, 'state_dict_ema')
    return save(path, tensors, 'model', epoch=299)


@FAMILIES
@pytest.mark.parametrize('options', [dict(), dict(pe_joining='lape'), dict(patch_norm='dual')], ids=str)
def test_a_public_file_loads_strictly(tmp_path, cls, options):
    source = model(cls, **options)
    path = public_file(tmp_path / 'a.pth.tar', source)
    target = new_token_vit(cls, **options, init_cfg=dict(type='Pretrained', checkpoint=path))
    target.init_weights()
    assert_same(target, source)
    report = target.load_report
    assert report.dropped == ['head.weight', 'head.bias'] and not report.new and not report.resized


def test_random_features_are_the_files(tmp_path):
    source = new_token_vit(T2TViT)
    source.tokens_to_token.attention1.w.normal_()
    load_backbone(target := new_token_vit(T2TViT), public_file(tmp_path / 'a.pth.tar', source))
    assert torch.equal(target.tokens_to_token.attention1.w, source.tokens_to_token.attention1.w)


@pytest.mark.parametrize(('cls', 'pe_type'), [(CeiT, 'learnable'), (T2TViT, 'sincos1d'), (T2TViT, 'learnable')])
def test_the_pe_is_resized_and_its_class_row_kept(tmp_path, cls, pe_type):
    source = model(cls, pe_type=pe_type)
    report = load_backbone(
        target := model(cls, (64, 32), pe_type=pe_type), public_file(tmp_path / 'a.pth.tar', source)
    )
    assert report.resized == {'pos_embed': '3x3 -> 4x2'}
    assert torch.equal(target.pos_embed, resize_absolute(source.pos_embed, (3, 3), (4, 2), 1))


def test_a_feature_map_drops_class_attention_and_says_so(tmp_path):
    source = model(CeiT)
    report = load_backbone(target := new_token_vit(CeiT, out_type='featmap'), public_file(tmp_path / 'a.pth', source))
    assert_same(target, source)
    assert {name.partition('.')[0] for name in report.dropped} == {'lca', 'pos_layer_embed', 'head'}
    with pytest.raises(CheckpointError, match='missing: lca'):
        load_backbone(new_token_vit(CeiT), save(tmp_path / 'b.pth', target.state_dict()))


def test_files_of_other_models_are_refused(tmp_path):
    files = {cls: public_file(tmp_path / cls.__name__, model(cls)) for cls in TOKEN_ARCHS}
    with pytest.raises(CheckpointError, match='matches no known layout'):
        load_backbone(new_token_vit(CeiT), files[T2TViT])
    with pytest.raises(CheckpointError, match=r'unexpected: tokens_to_token\.attention1\.w '):
        load_backbone(new_token_vit(T2TViT, tokens_type='transformer'), files[T2TViT])
    with pytest.raises(CheckpointError, match="wrong PE: pos_embed is not the table of pe_type='sincos1d'"):
        load_backbone(new_token_vit(CeiT, pe_type='sincos1d'), files[CeiT])


@FAMILIES
@pytest.mark.parametrize(
    'options',
    [
        dict(),
        dict(pe_joining='lape', patch_norm='dual'),
        dict(pe_joining='lape', pe_norm='channel', patch_norm='rms'),
        dict(pe_type='rpe', patch_norm='pre'),
        dict(pe_type='none', patch_norm='post'),
    ],
    ids=str,
)
def test_inspect_prints_what_loads_a_file(tmp_path, cls, options):
    source = model(cls, **options)
    assert inspect(public_file(tmp_path / 'a.pth.tar', source))['layout'] == cls.__name__
    found = inspect(run_file(tmp_path / 'b.pth', source))
    assert found['layers'] == source.num_layers and {key: found[key] for key in options} == options
    target = MODELS.build(eval(found['to load it'].removeprefix('backbone=')))
    target.init_weights()
    assert_same(target, source)
    image = torch.randn(1, 3, 48, 48)
    assert not target.load_report.resized and torch.equal(target.eval()(image)[0], source(image)[0])


@pytest.mark.parametrize(('cls', 'arch', 'name'), [(T2TViT, 't2t-vit-7', 't2t-vit-7'), (CeiT, 'small', 'ceit-small')])
def test_inspect_names_the_public_models(tmp_path, cls, arch, name):
    found = inspect(public_file(tmp_path / 'a.pth', cls(arch)))
    assert (found['model'], found['pe grid']) == (name, '14 x 14')
    assert found['pe_type'] == ('sincos1d' if cls is T2TViT else 'learnable')
    assert f'arch={arch!r}' in found['to load it'] and 'img_size' not in found['to load it'], 'it is the default'
    assert ('averaged ones (EMA)' in found['notes']) == (cls is T2TViT)


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


@FAMILIES
def test_convert_and_publish(tmp_path, cls):
    source, path = (one := model(cls, pe_joining='lape')), public_file(tmp_path / 'a.pth.tar', one)
    assert convert(path, tmp_path / 'b.pth', 'mmlape') == []
    load_backbone(target := new_token_vit(cls, pe_joining='lape'), str(tmp_path / 'b.pth'))
    assert_same(target, source)
    if cls is T2TViT:
        with pytest.raises(CheckpointError, match='averaged ones .EMA. only; pass --weights ema'):
            publish(path, tmp_path / 'c.safetensors')
    file = publish(path, tmp_path / 'c.safetensors', 'ema' if cls is T2TViT else 'plain')
    assert 'head.weight' in read_checkpoint(file)


@FAMILIES
def test_a_plain_state_dict_is_resized_by_torchs_own_function(cls):
    source, target = model(cls, (48, 32)), new_token_vit(cls, (16, 64))
    target.load_state_dict(source.state_dict())
    assert torch.equal(target.pos_embed, resize_absolute(source.pos_embed, (3, 2), (1, 4), 1))


@FAMILIES
def test_visualize_pe_shows_a_file(tmp_path, cls, capsys):
    path = run_file(tmp_path / 'a.pth', model(cls, pe_joining='lape'))
    assert main(['visualize-pe', path, '--out', str(tmp_path / 'out')]) == 0, capsys.readouterr()
    assert [file.suffix for file in (tmp_path / 'out').rglob('*.png')]
    assert not re.search('Traceback', capsys.readouterr().err)
