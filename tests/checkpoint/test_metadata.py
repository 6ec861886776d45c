"""What files record beside their weights: joinings and norms that leave the same keys are told apart."""

import json
import logging
import re

import pytest
from checkpoint_helpers import assert_same, built_of, record_in, run_file, save
from mmengine.logging import MMLogger
from model_helpers import vit
from torch import nn

from mmlape.checkpoint import load_backbone, load_model
from mmlape.checkpoint.converting import average, convert, inspect, publish
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
    path = run_file(tmp_path / 'a.pth', Segmentor(**stored))
    report = load_backbone(vit(**wanted), path)
    assert len(report.loaded) == report.total, 'the keys do not tell them apart'
    values = {**stored, **wanted}.keys() - {key for key in stored if stored[key] == wanted.get(key)}
    assert len(warnings) == 1 and str(tmp_path / 'a.pth') in warnings[0] and 'another function' in warnings[0]
    defaults = dict(pe_type='learnable', pe_norm='layernorm')
    for key in values:
        for options in (stored, wanted):
            assert f'{key}={options.get(key, defaults.get(key))!r}' in warnings[0]
    warnings.clear()
    same = vit(**stored)
    load_backbone(same, path)
    assert not warnings


@pytest.mark.parametrize(('stored', 'wanted'), PAIRS)
def test_a_complete_model_of_another_joining_is_refused(tmp_path, stored, wanted):
    """As by ``mmlape test`` and ``load_from``."""
    path = run_file(tmp_path / 'a.pth', source := Segmentor(**stored))
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
