"""What files record beside their weights: joinings and norms that leave the same keys are told apart.

So are the mean and standard deviation that weights want: others in training or testing warn.
"""

import json
import logging
import re
from argparse import Namespace

import mmcv.cnn  # noqa: F401  (whose norms a published file may name)
import numpy as np
import pytest
from checkpoint_helpers import assert_same, built_of, record_in, run_file, save, to_flax
from mmengine.logging import MMLogger
from mmengine.model import BaseModel, ImgDataPreprocessor
from model_helpers import vit
from safetensors.torch import save_file
from torch import nn

from mmlape.checkpoint import load_backbone, load_model
from mmlape.checkpoint.converting import average, convert, inspect, publish
from mmlape.checkpoint.loading import warn_of_normalisation
from mmlape.checkpoint.metadata import KEY, Metadata, metadata_of
from mmlape.errors import CheckpointError
from mmlape.models import TimmViTAdapter

PAIRS = [
    (dict(pe_joining='default'), dict(pe_joining='shared')),
    (dict(pe_joining='lape'), dict(pe_joining='lape-shared')),
    (dict(pe_joining='lape', pe_norm='affine'), dict(pe_joining='lape')),
    (dict(pe_joining='lape', pe_norm='norm'), dict(pe_joining='lape', pe_norm='identity')),
    (dict(pe_type='sincos2d'), dict()),
]


@pytest.fixture
def warnings(monkeypatch) -> list[str]:
    """Warnings in the log, from here on."""
    logger, found = MMLogger.get_instance('records'), []
    monkeypatch.setattr(MMLogger, 'get_current_instance', lambda: logger)
    ours = lambda level, text: level == logging.WARNING and text.startswith('checkpoint ')  # noqa: E731
    monkeypatch.setattr(logger, 'log', lambda level, text: ours(level, text) and found.append(text))
    return found


def plain(values):
    """Values as JSON gives them back."""
    return json.loads(json.dumps(values))


class Segmentor(nn.Module):
    """A complete model: a backbone and a head."""

    def __init__(self, **kwargs):
        super().__init__()
        self.backbone, self.decode_head = vit(**kwargs), nn.Linear(24, 3)


@pytest.mark.parametrize(('stored', 'wanted'), PAIRS)
def test_a_file_with_the_same_keys_from_another_model_warns(tmp_path, warnings, stored, wanted):
    """As a complete model, by ``mmlape test`` and ``load_from``, it is refused."""
    path = run_file(tmp_path / 'a.pth', source := Segmentor(**stored))
    report = load_backbone(vit(**wanted), path)
    assert len(report.loaded) == report.total, 'the keys do not tell them apart'
    values = {**stored, **wanted}.keys() - {key for key in stored if stored[key] == wanted.get(key)}
    assert len(warnings) == 1 and str(tmp_path / 'a.pth') in warnings[0] and 'another function' in warnings[0]
    defaults = dict(pe_type='learnable', pe_norm='layernorm')
    for key in values:
        for options in (stored, wanted):
            assert f'{key}={options.get(key, defaults.get(key))!r}' in warnings[0]
    warnings.clear()
    load_backbone(vit(**stored), path)
    assert not warnings
    with pytest.raises(CheckpointError, match=r'wrong backbone: trained with pe_.*, but the model has pe_'):
        load_model(Segmentor(**wanted), path)
    load_model(model := Segmentor(**stored), path)
    assert_same(model, source)
    assert 'trained with' in load_model(Segmentor(**wanted), path, strict=False).problems[0]


@pytest.mark.parametrize(
    ('kwargs', 'note'),
    [
        (dict(), 'pe_joining default or shared.*; taken as default'),
        (dict(pe_joining='shared'), 'pe_joining default or shared.*; taken as shared'),
        (dict(pe_joining='lape'), 'pe_joining lape or lape-shared.*, or pe_norm affine or layernorm; taken as lape, '),
        (dict(pe_joining='lape', pe_norm='scalar'), 'or pe_norm scalar or scalar-norm; taken as lape, scalar'),
        (dict(pe_joining='unshared'), None),
        (dict(pe_type='rpe', pe_joining='lape'), None),
        (dict(pe_type='none'), None),
    ],
)
def test_a_foreign_file_that_does_not_tell_is_loaded_with_a_note(tmp_path, warnings, kwargs, note):
    path = save(tmp_path / 'a.pth', vit(**kwargs).state_dict())
    for report in (load_backbone(vit(**kwargs), path), load_model(vit(**kwargs), path)):
        assert (re.search(note, str(report)) and len(report.notes) == 1) if note else not report.notes
    assert not warnings


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_everything_that_is_written_keeps_the_record(tmp_path, suffix):
    model = Segmentor(pe_joining='lape-shared', pe_norm='affine', img_size=(48, 16))
    path, other = (run_file(tmp_path / name, model) for name in ('a.pth', 'b.pth'))
    expected = plain(model.backbone.checkpoint_adapter.record(model.backbone))
    assert expected['grid'] == [6, 2] and expected['pe_norm'] == 'affine'
    file = publish(path, tmp_path / 'published.safetensors')
    average([path, other], tmp_path / f'mean{suffix}')
    convert(path, tmp_path / f'ours{suffix}', 'mmlape')
    for written in (file, *(tmp_path / f'{name}{suffix}' for name in ('mean', 'ours'))):
        assert record_in(written).backbone == expected, written
        found = inspect(written)
        assert (found['pe_joining'], found['pe_norm'], found['pe grid']) == ('lape-shared', 'affine', '6 x 2')
        assert "pe_joining='lape-shared', pe_norm='affine'" in found['to load it']
        built = built_of(found)
        assert_same(built, model.backbone)
        assert plain(built.checkpoint_adapter.record(built)) == expected
        assert 'does not say whether pe' not in found['notes']
        report = load_backbone(vit(pe_joining='lape-shared', pe_norm='affine', img_size=(48, 16)), str(written))
        assert not report.resized and not report.warnings, 'the grid is known'


@pytest.mark.parametrize(
    'stored', ['no JSON', '[1]', 3, {'backbones': 3}, {'backbones': {'': 'x'}}, {'backbones': {'': {'grid': 3}}}, None]
)
def test_a_record_that_is_none_is_as_good_as_no_record(tmp_path, stored):
    path = save(tmp_path / 'a.pth', vit().state_dict(), meta={KEY: stored})
    assert load_backbone(vit(), path).notes and inspect(path)['pos_embed'] == (1, 17, 24)
    save(tmp_path / 'b.pth', vit().state_dict(), meta='text')
    assert load_backbone(vit(), str(tmp_path / 'b.pth')).notes


def test_backbones_that_differ_have_no_common_record():
    one, other = dict(pe_joining='lape'), dict(pe_joining='default')
    assert Metadata(dict(a=one, b=dict(one))).backbone == one and Metadata(dict(a=one, b=other)).backbone == {}
    assert Metadata().backbone == {} and Metadata(dict(a=one, b=other)).alone('c').backbones == {}
    assert Metadata(dict(a=one)).alone('c').backbones == dict(c=one)


def test_what_only_training_needs_is_not_recorded():
    vits = dict(model_name='test_vit', with_cp=True, drop_path_rate=0.1)
    model = TimmViTAdapter(vits, drop_path_rate=0.2, deform_num_heads=4, mode='inject')
    recorded = dict(vit=dict(model_name='test_vit'), deform_num_heads=4)
    assert metadata_of(model).backbone['config'] == dict(type='mmlape.TimmViTAdapter', **recorded)
    assert model.arguments['vit']['with_cp'] and vit(frozen_stages=1).arguments['frozen_stages'] == 1


IMAGENET = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
HALF = dict(mean=[127.5] * 3, std=[127.5] * 3)


class Classifier(BaseModel):
    def __init__(self, normalisation, **kwargs):
        super().__init__(data_preprocessor=ImgDataPreprocessor(**normalisation))
        self.backbone = vit(**kwargs)

    def forward(self, inputs):
        return self.backbone(inputs)


def augreg(path):
    np.savez(path, **to_flax(vit()))
    return str(path)


def timm_hub(folder, **pretrained_cfg):
    folder.mkdir()
    save_file(vit().state_dict(), folder / 'model.safetensors', {'format': 'pt'})
    (folder / 'config.json').write_text(json.dumps(dict(architecture='vit', pretrained_cfg=pretrained_cfg)))
    return str(folder / 'model.safetensors')


def timm_metadata(path):
    cfg = dict(mean=[0.5] * 3, std=[0.5] * 3)
    save_file(vit().state_dict(), path, {'format': 'pt', 'pretrained_cfg': json.dumps(cfg)})
    return str(path)


def config_text(path):
    """As MMEngine stores it."""
    text = f'model = dict(data_preprocessor=dict(mean={[127.5] * 3}, std={[127.5] * 3}))'
    return save(path, vit().state_dict(), 'state_dict', meta=dict(cfg=text))


FILES = {
    'AugReg and big_vision': lambda folder: augreg(folder / 'a.npz'),
    "timm's pretrained_cfg": lambda folder: timm_hub(folder / 'hub', mean=[0.5] * 3, std=[0.5] * 3),
    'pretrained_cfg of the metadata': lambda folder: timm_metadata(folder / 'a.safetensors'),
    "timm's training arguments": lambda folder: save(
        folder / 'a.pth', vit().state_dict(), args=Namespace(mean=[0.5] * 3, std=[0.5] * 3)
    ),
    'of the stored config': lambda folder: config_text(folder / 'a.pth'),
    'recorded': lambda folder: run_file(folder / 'a.pth', Classifier(HALF)),
}


@pytest.mark.parametrize('source', FILES)
def test_a_file_says_which_normalisation_it_wants_and_another_warns(tmp_path, warnings, source):
    path = FILES[source](tmp_path)
    shown = inspect(path)['images']
    assert shown.startswith('mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]: ')
    assert source.removesuffix(' of the metadata') in shown
    for normalisation, count in ((HALF, 0), ({}, 0), (IMAGENET, 1)):
        model = Classifier(normalisation, init_cfg=dict(type='Pretrained', checkpoint=path))
        model.init_weights()
        warn_of_normalisation(model)  # as our runner does at the start of a run
        assert len(warnings) == count
    assert path in warnings[0] and 'mean=[123.675, 116.28, 103.53]' in warnings[0]


def test_a_complete_model_tested_with_another_normalisation_warns(tmp_path, warnings):
    path = run_file(tmp_path / 'a.pth', Classifier(IMAGENET))
    load_model(Classifier(dict(mean=[124, 116, 104], std=[58, 57, 57])), path)
    assert not warnings, 'rounded values are the same'
    load_model(Classifier(dict(mean=IMAGENET['mean'][::-1], std=IMAGENET['std'])), path)
    assert len(warnings) == 1 and 'recorded' in warnings[0], 'channels in the other order'


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_what_is_written_from_a_file_keeps_its_normalisation(tmp_path, suffix):
    convert(augreg(tmp_path / 'a.npz'), tmp_path / f'b{suffix}', 'mmlape')
    published = publish(tmp_path / f'b{suffix}', tmp_path / 'c.safetensors')
    for path in (tmp_path / f'b{suffix}', published):
        assert record_in(path).plain() == HALF


@pytest.mark.parametrize(
    'meta',
    [
        *(dict(cfg=text) for text in ('(', 3, 'del data_preprocessor', 'data_preprocessor = dict(mean=[x], std=[y])')),
        dict(pretrained_cfg='3'),
        *(dict(mmlape=dict(mean=mean, std=[1])) for mean in ('abc', ['a'], 1)),
    ],
)
def test_nonsense_beside_the_weights_is_ignored(tmp_path, meta):
    path = save(tmp_path / 'a.pth', vit().state_dict(), meta=meta)
    assert record_in(path).normalisation is None
