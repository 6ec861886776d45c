"""Models by name: what is listed, what is built, and with which weights."""

import re
from inspect import signature as arguments_of

import pytest
import torch
from each import each
from model_helpers import meta_device

import mmlape
from mmlape.checkpoint.converting import write_tensors
from mmlape.checkpoint.metadata import metadata_of
from mmlape.cli import main
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models import TimmViT, VisionTransformer
from mmlape.models.base.checkpoint import signature
from mmlape.models.model_names import find_model
from mmlape.registry import MODELS

SMALL = dict(arch=dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64), img_size=32)
OURS = [name for name in mmlape.list_models() if not name.startswith('timm/')]


ENDS = re.compile('-(lape|dpn|lape-dpn)$')
WITHOUT_AND_WITH_BOTH = [name for name in OURS if ENDS.search(name) is None or name.endswith('-lape-dpn')]


@pytest.mark.parametrize(
    'names', [WITHOUT_AND_WITH_BOTH[::2], pytest.param(OURS, marks=pytest.mark.release)], ids=['quarter', 'all']
)
def test_every_model_is_what_its_name_says_and_no_other(names):
    """Two names of the same names and shapes of tensors are two names of one model: their arguments are equal."""
    known: dict = {}
    for name in each(names):
        with meta_device():
            model = mmlape.get_model(name)
        kind, options = find_model(name)
        arguments = arguments_of(kind).bind(**options)
        arguments.apply_defaults()
        twin = known.setdefault(signature(model.state_dict()), (name, kind, arguments.arguments))
        assert twin[1:] == (kind, arguments.arguments), f'{name} and {twin[0]} are different models of one signature'
        names = list(model.state_dict())
        # LaPE's norms of the PE, and the norm of a patch's values, have names in every family
        assert any('.pe_norm.' in own for own in names) == ('-lape' in name)
        assert any(re.search(r'\bnorm0\.weight', own) for own in names) == name.endswith('-dpn')
    assert len(names) > 80


def test_names_are_found_by_pattern():
    assert mmlape.list_models('swin-tiny*') == ['swin-tiny', 'swin-tiny-dpn', 'swin-tiny-lape', 'swin-tiny-lape-dpn']
    assert set(mmlape.list_models('*-lape')) == {name for name in OURS if name.endswith('-lape')}
    assert 't2t-vit-7' in OURS and 'cct-7-3x1' in OURS and 'deit-base-adapter-lape-dpn' in OURS
    assert 'timm/vit_small_patch16_dinov3' in mmlape.list_models('timm/*dinov3')
    assert mmlape.list_models('no-such-model*') == []


def test_arguments_replace_those_of_the_name():
    model = mmlape.get_model('deit-tiny-lape', **SMALL, pe_joining='shared', out_type='featmap')
    assert (model.embed_dims, model.out_type, model.position.joining.name) == (32, 'featmap', 'shared')
    assert not any('.pe_norm.' in name for name in model.state_dict())


def test_models_of_timm_are_built_by_timms_names():
    model = mmlape.get_model('timm/vit_tiny_patch16_224.augreg_in21k', img_size=32)
    assert type(model) is TimmViT and model.source.name == 'vit_tiny_patch16_224.augreg_in21k'
    with pytest.raises(ConfigError, match='the closest names: .*vit_small_patch16_224'):
        mmlape.get_model('timm/vit_smal_patch16_224')


def test_a_checkpoint_is_loaded_and_must_fit(tmp_path):
    path = tmp_path / 'lape.pth'
    trained = mmlape.get_model('deit-tiny-lape', **SMALL)
    write_tensors(trained.state_dict(), path, 'state_dict', metadata=metadata_of(trained))
    model = mmlape.get_model('deit-tiny-lape', pretrained=path, **SMALL)
    assert all(torch.equal(value, trained.state_dict()[name]) for name, value in model.state_dict().items())
    assert model.load_report.path == str(path)
    with pytest.raises(CheckpointError, match="with LaPE, but the model has pe_joining='default'"):
        mmlape.get_model('deit-tiny', pretrained=path, **SMALL)
    with pytest.raises(ConfigError, match='pretrained and init_cfg each name weights'):
        mmlape.get_model('deit-tiny', pretrained=path, init_cfg=dict(type='Pretrained', checkpoint='x'), **SMALL)


def test_weights_that_timm_knows(monkeypatch):
    monkeypatch.setattr(TimmViT, 'init_weights', lambda model: model.init_cfg)
    model = mmlape.get_model('timm/vit_tiny_patch16_224.augreg_in21k', pretrained=True)
    assert model.init_cfg['checkpoint'] == model.source.checkpoint
    assert mmlape.get_model('timm/vit_tiny_patch16_224', pretrained=False).init_cfg is None
    assert mmlape.get_model('deit-tiny-adapter', **SMALL, conv_inplane=8, deform_num_heads=2, qkv_bias=False)


@pytest.fixture
def own():
    """A user's backbone with a name, and one derived from it without."""

    class OwnViT(VisionTransformer):
        model_names = {'own-vit-lape': dict(**SMALL, pe_joining='lape')}

    class DerivedViT(OwnViT):
        pass

    before = dict(MODELS.module_dict)
    for kind in (OwnViT, DerivedViT):
        MODELS.register_module(module=kind)
    yield OwnViT
    MODELS.module_dict.clear()
    MODELS.module_dict.update(before)


def test_a_users_backbone_is_listed_and_built(own, capsys):
    assert mmlape.list_models('own*') == ['own-vit-lape']
    assert type(mmlape.get_model('own-vit-lape')) is own
    assert main(['list-models', 'own*']) == 0
    line = r"own-vit-lape  OwnViT\(arch={.*}, img_size=32, pe_joining='lape'\)\n"
    assert re.fullmatch(line, capsys.readouterr().out)
