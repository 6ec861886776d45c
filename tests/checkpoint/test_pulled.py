"""Configs of strangers: what a pulled one may say, and that none runs code, opens a file or writes one."""

import copy
import io
import json
import pickle
import sys

import pytest
import torch
import yaml
from checkpoint_helpers import Payload
from mmengine.config import Config

import mmlape  # noqa: F401
from mmlape.checkpoint.hub import CARD, CONFIG, CONFIG_NAME, WEIGHTS
from mmlape.errors import CheckpointError, ConfigError, MMLaPEError
from mmlape.lab.engine import pulled
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.pulled import TEXTS, check_texts, own_config, pull, shared_parts
from mmlape.weights.plain_config import read_plain, write_plain

WHERE = f'someone/model/{CONFIG}'
DETECTOR = 'mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
SEGMENTOR = 'segmenter_deit-mini-lape_1xb16-250i_mini-ade'
CLASSIFIER = 'deit-mini-irpe-product-k_1xb32-5e_mini-digits'
CONFIGS = {DETECTOR: 'mask_rcnn', SEGMENTOR: 'segmenter', CLASSIFIER: 'deit'}


@pytest.fixture(scope='module')
def shipped():
    """The values of three configs as a run publishes them, by name."""
    read = {name: load_config(f'mmlape::{folder}/{name}').to_dict() for name, folder in CONFIGS.items()}
    return {name: {CONFIG_NAME: name, **values} for name, values in read.items()}


@pytest.fixture
def values(shipped):
    return copy.deepcopy(shipped[DETECTOR])


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Publishes a config beside weights and a card that are not read, and pulls it."""

    def publish_and_pull(text, **options):
        folder = tmp_path / 'hub'
        folder.mkdir(exist_ok=True)
        for file, content in ((WEIGHTS, 'weights'), (CONFIG, text), (CARD, 'card')):
            (folder / file).write_text(content)
        monkeypatch.setattr(pulled, 'download', lambda name: {file: folder / file for file in (WEIGHTS, CONFIG, CARD)})
        return pull('someone/model', tmp_path / 'pulled', **options)

    return publish_and_pull


@pytest.fixture
def canary(tmp_path):
    """A folder that a payload makes."""
    return tmp_path / 'canary'


def at(node, place):
    """The part of a config in a dotted place, and the last key."""
    *parents, last = place.split('.')
    for key in parents:
        node = node[int(key) if isinstance(node, list) else key]
    return node, int(last) if isinstance(node, list) else last


def put(values, place, value):
    node, key = at(values, place)
    node[key] = value


# what every call in the stack that evaluates, unpickles, imports or deletes would be given

PIPELINE = 'test_dataloader.dataset.pipeline'
CODE = "__import__('os').mkdir({canary!r})"
IN_TORCH = f'float32, {CODE}'
HOSTILE = {
    'mmcv batched_nms evaluates its type': ('model.test_cfg.rcnn.nms.type', CODE),
    'the same, of the RPN': ('model.test_cfg.rpn.nms.type', CODE),
    'the same, as a text instead of a dict': ('model.test_cfg.rcnn.nms', CODE),
    'mmcv RFSearch evaluates the op': ('model.search_op', f'Conv2d, {CODE}'),
    'mmdet CameraMotionCompensation evaluates warp_mode': (
        'model.cmc', dict(type='CameraMotionCompensation', warp_mode=CODE)),
    'mmpretrain ConvertImageDtype evaluates dtype': (
        f'{PIPELINE}.0', dict(type='torchvision/ConvertImageDtype', dtype=IN_TORCH)),
    'the same, with its package': (
        f'{PIPELINE}.0', dict(type='mmpretrain.torchvision/ConvertImageDtype', dtype=IN_TORCH)),
    'mmseg LoadBiomedicalImageFromFile unpickles': (
        f'{PIPELINE}.0', dict(type='mmseg.LoadBiomedicalImageFromFile', decode_backend='pickle')),
    'mmseg LoadBiomedicalAnnotation unpickles': (
        f'{PIPELINE}.2', dict(type='mmseg.LoadBiomedicalAnnotation', decode_backend='pickle')),
    'mmseg losses load class weights from YAML and pickles': (
        'model.roi_head.bbox_head.loss_cls.class_weight', '{folder}/weights.pkl'),
    'mmengine imports a module of a bare type': ('model.backbone.type', 'evil_module'),
    'the same, of one below the model': ('model.roi_head.mask_head.loss_mask.type', 'evil_module'),
    'mmengine calls what a path names': ('model.neck', dict(type='os.mkdir', path='{canary}')),
    'mmengine calls a function of its own': ('model.neck', dict(type='mmengine.load', file='{folder}/x.pkl')),
    'a type of another place': ('model.neck.type', 'MaskRCNN'),
    'a type that is no text': ('model.neck.type', ['FPN']),
    'mmengine imports the package of a scope': ('model._scope_', 'evil_module'),
    'mmengine imports a torchvision module of an address': ('model.backbone.pretrained', 'torchvision://evil'),
    'mmdet RoIAlign is found by getattr': (
        'model.roi_head.bbox_roi_extractor.roi_layer.type', '__builtins__'),
    'timm opens a repository': ('model.backbone.model_name', 'hf-hub:evil/repository'),
    'timm opens a folder': ('model.backbone.model_name', 'local-dir:{folder}'),
    'mmpretrain swaps a pickle in': ('model.prototype', '{folder}/x.pth'),
    'transforms read by another backend': (f'{PIPELINE}.0.backend_args', dict(backend='http')),
    'the same, as once': (f'{PIPELINE}.0.file_client_args', dict(backend='http')),
    'transforms read a file of their own': (f'{PIPELINE}.0.img_path', '{folder}/x'),
    'the preprocessor has any type': ('model.data_preprocessor.type', 'os.mkdir'),
    'the preprocessor at the top has any type': ('data_preprocessor', dict(type='os.mkdir', path='{canary}')),
    'MMEngine replaces instead of merging': ('model._delete_', True),
    'MMEngine replaces braces': ('model.test_cfg.rcnn.note', '{{{{$HOME:x}}}}'),
    'a key that is no word': ('model.neck', {'type': 'FPN', "a', b=print()": 1}),
    'no model': ('model', CODE),
    'no pipeline': (PIPELINE, CODE),
    'an ann_file by a wrapper': ('model.backbone.ann_file', 'http://127.0.0.1/x.yml'),
}  # fmt: skip
"""By what a call does with it: the place of a config, and a value that is refused there."""
LEFT_OUT = {
    'custom_imports': dict(imports=['evil_module'], allow_failed_imports=True),
    'work_dir': '{folder}/elsewhere',
    'load_from': 'http://127.0.0.1/x.pth',
    'default_hooks.checkpoint.out_dir': '{folder}/elsewhere',
    'custom_hooks': [dict(type='os.mkdir', path='{canary}')],
    'vis_backends': [dict(type='DVCLiveVisBackend', save_dir='{folder}/elsewhere')],
    'visualizer': dict(type='os.mkdir', path='{canary}'),
    'env_cfg': dict(dist_cfg=dict(backend='evil')),
    'test_dataloader.dataset.ann_file': 'http://127.0.0.1/x.yml',
    'test_dataloader.dataset.type': 'evil_module',
    'test_dataloader.sampler': dict(type='os.mkdir', path='{canary}'),
    'test_dataloader.collate_fn': dict(type='os.mkdir', path='{canary}'),
    'test_evaluator.outfile_prefix': '{folder}/precious',
    'test_evaluator.collect_dir': '{folder}/precious',
    'test_evaluator': [dict(type='CityscapesMetric', outfile_prefix='{folder}/precious')],
    'test_cfg': dict(type='os.mkdir', path='{canary}'),
    'tta_model': dict(type='os.mkdir', path='{canary}'),
    'tta_pipeline': [dict(type='os.mkdir', path='{canary}')],
    'model_wrapper_cfg': dict(type='os.mkdir', path='{canary}'),
    'optim_wrapper': dict(type='os.mkdir', path='{canary}'),
    'runner_type': 'os.mkdir',
    'own_keys': ['model.neck.type'],
    'model.backbone.init_cfg': dict(type='Pretrained', checkpoint='http://127.0.0.1/x.pth'),
    'model.init_cfg': dict(type='os.mkdir', path='{canary}'),
}
"""Places of a config that are not taken, with values that would do something."""


def filled(value, **texts):
    """The value with the names of this test's files."""
    if isinstance(value, dict):
        return {key: filled(one, **texts) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, **texts) for one in value]
    return value.format(**texts) if isinstance(value, str) else value


@pytest.fixture
def evil_module(tmp_path, monkeypatch, canary):
    """A module on the path whose import makes the canary."""
    (tmp_path / 'evil_module.py').write_text(f'import os\nos.mkdir({str(canary)!r})\n')
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop('evil_module', None)


@pytest.mark.usefixtures('evil_module')
@pytest.mark.parametrize('call', HOSTILE)
def test_a_hostile_value_is_refused(call, values, published, tmp_path, canary):
    place, value = HOSTILE[call]
    put(values, place, filled(value, canary=str(canary), folder=str(tmp_path)))
    with pytest.raises(CheckpointError, match=f'^{WHERE}: refused, '):
        published(write_plain(values))
    assert not canary.exists() and not (tmp_path / 'pulled').exists() and 'evil_module' not in sys.modules


@pytest.mark.usefixtures('evil_module')
def test_what_is_not_taken_does_nothing(values, published, tmp_path, canary):
    (precious := tmp_path / 'precious').mkdir()
    expected, everything = own_config(values, WHERE), copy.deepcopy(values)
    for place, value in LEFT_OUT.items():
        changed = copy.deepcopy(values)
        for one in (changed, everything):
            put(one, place, filled(value, canary=str(canary), folder=str(tmp_path)))
        assert own_config(read_plain(write_plain(changed), 'x'), WHERE).to_dict() == expected.to_dict(), place
    config = published(write_plain(everything))[1]
    assert load_config(config).to_dict() == expected.to_dict()
    assert not canary.exists() and precious.exists() and 'evil_module' not in sys.modules


def test_the_calls_of_the_stack_would_run_it(tmp_path, canary, evil_module):
    """Else the tests above would prove nothing: each call as the stack makes it, with the same texts."""
    import mmseg.models  # noqa: F401
    from mmcv.ops import batched_nms
    from mmdet.models.task_modules.tracking.camera_motion_compensation import CameraMotionCompensation
    from mmengine.registry import MODELS
    from mmpretrain.datasets.transforms.processing import _str_to_torch_dtype
    from mmseg.models.losses.utils import get_class_weight
    from mmseg.utils.io import datafrombytes

    payload = Payload()
    payload.path = str(canary)
    (tmp_path / 'weights.pkl').write_bytes(pickle.dumps(payload))
    boxes, code = torch.ones(1, 4), CODE.format(canary=str(canary))
    calls = [
        lambda: batched_nms(boxes, torch.ones(1), torch.zeros(1, dtype=torch.long), dict(type=code)),
        lambda: CameraMotionCompensation(warp_mode=code),
        lambda: _str_to_torch_dtype(f'float32, {code}'),
        lambda: datafrombytes(pickle.dumps(payload), 'pickle'),
        lambda: get_class_weight(str(tmp_path / 'weights.pkl')),
        lambda: MODELS.build(dict(type='os.mkdir', path=str(canary))),
        lambda: MODELS.build(dict(type='evil_module')),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except Exception as error:
            assert canary.exists(), (number, error)
        canary.rmdir()


@pytest.mark.filterwarnings('ignore::SyntaxWarning')
@pytest.mark.parametrize(
    'text',
    [
        'import os',
        'a = open("b")',
        'a = dict(b=[c for c in ()])',
        "_base_ = 'other.py'",
        "_base_ = ['mmdet::_base_/default_runtime.py']",
        'a = dict.__class__',
        'a = b = 1',
        'a.b = 1',
        'a, b = 1, 2',
        'a += 1',
        "a = f'{1}'",
        'a = 1 + 1',
        "a = ['b\\{{$N:}}', '+open()+', '']",
        "model = dict([('type', 'os.system')], command='x')",
        "model = dict(**{'type': 'os.system'})",
        "model = {**{'type': 'os.system'}}",
        'a = ...',
        "a = b'bytes'",
        'a = 1j',
        'a = 1e999',
        "a = -'b'",
        f'a = {10**30}',
        'a = 9' + 5000 * '9',
        'a = ' + 300 * '[' + 300 * ']',
        'a = ' + 200 * '-' + '1',
        "a = '\udcff'",  # no UTF-8
        'a = (',
        'a = 1  #' + 10_000_000 * ' ',
    ],
    ids=range(28),
)
def test_a_config_that_is_more_than_plain_values_is_refused(published, tmp_path, text, monkeypatch):
    content = text.encode(errors='surrogateescape')
    with pytest.raises(CheckpointError, match='^x: (refused|no config)'):
        read_plain(content, 'x')
    if 'udcff' not in ascii(text):
        with pytest.raises(CheckpointError, match=f'^{WHERE}: (refused|no config)'):
            published(text)
        assert not (tmp_path / 'pulled').exists()


# which texts are known


def places(node, above=()):
    """Every place of a dict, list or value in a config."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list | tuple) else ()
    for key, child in entries:
        yield (*above, key)
        yield from places(child, (*above, key))


def replaced(node, place, value):
    """A copy of a config with another value in a place."""
    if not place:
        return value
    key, rest = place[0], place[1:]
    if isinstance(node, dict):
        return {**node, key: replaced(node.get(key), rest, value)}
    return type(node)(replaced(one, rest, value) if index == key else one for index, one in enumerate(node))


@pytest.mark.parametrize('name', CONFIGS)
@pytest.mark.parametrize('text', ['os.system', 'Sequential', "print('x')", '/etc/passwd', ''])
def test_an_unknown_text_is_refused_wherever_it_stands(shipped, name, text):
    """In every place of the three parts: instead of a value, and under a new key."""
    parts = shared_parts(shipped[name])
    check_texts(parts, WHERE)
    count = 0
    for place in places(parts):
        node = parts
        for key in place:
            node = node[key]
        tried = [replaced(parts, place, text)]
        if isinstance(node, dict):
            tried += [replaced(parts, (*place, key), text) for key in ('type', 'new', 'nms', 'cfg')]
            tried += [replaced(parts, (*place, 'new'), dict(type=text)), replaced(parts, (*place, '_new_'), 1)]
        if place[-1] == 'model_name':
            continue
        for changed in tried:
            count += 1
            with pytest.raises(CheckpointError):
                check_texts(changed, WHERE)
    assert count > 100


def test_known_types_are_classes_or_names_that_nothing_calls():
    """No type of the list is a path, or the name of a module that could be imported."""
    known = json.loads(TEXTS.read_text())
    types = {text for place, texts in known.items() if place.endswith('.type') for text in texts}
    assert len(types) > 100
    packages = ('mmlape', 'mmdet', 'mmseg', 'mmpretrain', 'mmcv', 'mmengine', 'torchvision')
    for name in types:
        scope, _, _bare = name.rpartition('.')
        assert scope in ('', *packages) and not scope.count('.'), name
    for place, texts in known.items():
        assert texts == sorted(set(texts)), place
        for text in texts:
            assert not any(mark in text for mark in ('(', '__', '\\', '://', '..', '$')), (place, text)
            assert not text.startswith(('/', '~', '.')) and ': ' not in text


def test_names_that_constructors_know_are_allowed():
    import pulled_texts

    known = json.loads(TEXTS.read_text())
    missing = {place: {*names} - {*known.get(place, ())} for place, names in pulled_texts.NAMES.items()}
    assert not any(missing.values()), f'run python tests/pulled_texts.py: {missing}'


# which config is used


def test_all_but_three_parts_is_the_users(values, tmp_path):
    values['model']['backbone'] |= dict(pe_type='axial-deeplab', drop_path_rate=0.25)
    values['model']['neck']['num_outs'] = 6
    values['test_dataloader']['dataset']['pipeline'][1]['scale'] = (96, 96)
    values['test_dataloader']['batch_size'] = 7
    own = tmp_path / 'own.py'
    own.write_text(
        f"_base_ = 'mmlape::mask_rcnn/{DETECTOR}.py'\n"
        "test_dataloader = dict(num_workers=2, dataset=dict(metainfo=dict(classes=('a', 'b'))))\n"
        'model = dict(neck=dict(num_outs=9))\ncustom_hooks = [dict(type="EMAHook")]\n'
    )
    cfg = own_config(values, WHERE, str(own))
    assert cfg.model.backbone.pe_type == 'axial-deeplab' and cfg.model.neck.num_outs == 6
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (96, 96)
    loader = cfg.test_dataloader
    assert (loader.batch_size, loader.num_workers, loader.dataset.metainfo.classes) == (1, 2, ('a', 'b'))
    assert cfg.custom_hooks[0].type == 'EMAHook'


def test_files_and_words_of_the_model_are_the_users():
    name = 'lit_vit-mini_1xb64-600i_mini-captions'
    own = load_config(f'mmlape::lit/{name}')
    values = {CONFIG_NAME: name, **copy.deepcopy(own.to_dict())}
    values['model']['tokenizer']['vocab_file'] = '/etc/passwd'
    values['model'] |= dict(classes=['x'], templates='evil {}', temperature=2.0)
    cfg = own_config(values, WHERE)
    assert cfg.model.temperature == 2.0
    for key in ('classes', 'templates', 'tokenizer'):
        assert cfg.model[key] == own.model[key]


def test_a_run_of_none_of_our_configs_needs_one(values, published, tmp_path):
    for name in ('mine', '../../etc/passwd', 'mini_coco', '*', 5, None):
        values[CONFIG_NAME] = name
        with pytest.raises(CheckpointError, match=f'{WHERE}: was trained with none .* pass --config'):
            published(write_plain(values))
    assert not (tmp_path / 'pulled').exists()
    config = published(write_plain(values), config=f'mmlape::mask_rcnn/{DETECTOR}')[1]
    assert load_config(config).model.type == 'MaskRCNN'
    for other, error in (
        (f'mmlape::segmenter/{SEGMENTOR}', "is of mmseg, but .* of 'mmdet'"),
        ('nowhere.py', 'does not exist'),
    ):
        with pytest.raises(ConfigError, match=error):
            published(write_plain(values), config=other, overwrite=True)
    assert load_config(config).model.type == 'MaskRCNN', 'what was there has stayed'


def test_a_wrapped_test_set_gets_the_pipeline():
    """A few-shot test set has two datasets."""
    own = load_config('mmlape::vit/vit-small-p16_8xb512-93k_in21k').to_dict()
    values = {CONFIG_NAME: 'vit-small-p16_8xb512-93k_in21k', **copy.deepcopy(own)}
    first, _second = values['test_dataloader']['dataset']['datasets']
    size = next(index for index, step in enumerate(first['pipeline']) if step['type'] == 'CenterCrop')
    first['pipeline'][size]['crop_size'] = 96
    cfg = own_config(values, WHERE)
    assert [one.pipeline[size].crop_size for one in cfg.test_dataloader.dataset.datasets] == [96, 96]


# YAML


def test_yaml_builds_plain_values_only(tmp_path, canary, capsys):
    """As MMEngine reads annotations, a config, and the base of a study, with its own loader."""
    import mmengine

    evil = tmp_path / 'evil.yml'
    evil.write_text(f'model: !!python/object/apply:os.mkdir [{str(canary)!r}]\n')
    (tmp_path / 'study.yml').write_text(f'title: x\nseeds: [1]\nbase: {evil}\narms:\n  a: {{overrides: {{x: 1}}}}\n')
    with pytest.raises(yaml.constructor.ConstructorError):
        mmengine.load(evil)
    with pytest.raises(yaml.constructor.ConstructorError):
        mmengine.load(io.StringIO(evil.read_text()), file_format='yaml')
    with pytest.raises(yaml.constructor.ConstructorError):
        Config.fromfile(evil)
    for config in (evil, f'{tmp_path}/study.yml:a'):
        if config != evil:
            with pytest.raises(MMLaPEError, match='study.yml: arm a: base: '):
                load_config(config)
    assert not canary.exists()
    good = tmp_path / 'good.yml'
    mmengine.dump(plain := dict(a=[1, 2.5, None, True], b=(1, ('x', 2))), good)
    assert mmengine.load(good) == plain
    yaml.load(evil.read_text(), yaml.UnsafeLoader)
    assert canary.exists(), 'the loader of before would have run it'
