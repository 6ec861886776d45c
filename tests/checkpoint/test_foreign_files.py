"""Nothing in a file or in the folder of a run, which others may have made, runs code, imports a module or calls out.

Each hostile value fires once --trust-checkpoint switches the gate off, and is refused in one line without it.
"""

import argparse
import contextlib
import copy
import functools
import json
import os
import pickle
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import timm
import tiny
import torch
from checkpoint_helpers import SPY, Payload, enter, served
from checkpoint_helpers import fired as has_fired
from each import each
from mmengine import registry
from mmengine.config import Config
from mmengine.registry import init_default_scope
from model_helpers import placements
from safetensors.torch import save_file
from yapf.yapflib import yapf_api

import mmlape
from mmlape.backbones import open_model
from mmlape.checkpoint import gate, opening, read_checkpoint
from mmlape.checkpoint.closed_world import closed
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.checkpoint.plain_config import write_plain
from mmlape.cli import main
from mmlape.commands import COMMANDS, fill_parser
from mmlape.errors import MMLaPEError
from mmlape.kinds import JOININGS, POSITION_ENCODINGS
from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.stored_config import MORE, PARTS, config_of_run
from mmlape.lab.training.optim import build_model
from mmlape.models import SwinTransformer, VisionTransformer
from mmlape.models.grid import RESIZE_MODES
from mmlape.models.layers.norm_placement import METHODS, PLACES
from mmlape.models.layers.patch_embed import PATCH_NORMS
from mmlape.models.layers.transformer_layer import FFN_TYPES
from mmlape.models.named_layers import ACTIVATIONS, NORMS
from mmlape.models.position import PE_NORMS
from mmlape.projects.compact import TOKENIZERS
from mmlape.registry import MODELS

RESIZE = "\ntest_pipeline.insert(1, dict(type='Resize', scale=(32, 32), keep_ratio=True))\n"
FIRE = {'type': 'os.system', 'command': 'touch canary'}
HUB = {'type': 'mmlape.TimmViT', 'model_name': 'hf-hub:nobody/nothing'}
# what is put into a config of a segmentor, by the dotted key
OF_CONFIGS = {
    'model': FIRE,
    'model._scope_': 'spy',
    'model.backbone': FIRE,
    'model.backbone.act_cfg': FIRE,
    'model.backbone.norm_cfg': {'type': 'spy.Norm'},
    'model.data_preprocessor': FIRE,
    'model.decode_head.act_cfg': {'type': 'spy.Act'},
    'model.decode_head.loss_decode': {'type': 'spy'},
    'model.decode_head.norm_cfg': {'type': 'spy.Norm'},
    'model.decode_head.sampler': {'type': 'spy.Sampler'},
    'model.neck': {'type': 'subprocess.getoutput', 'cmd': 'touch canary'},
    'test_dataloader.dataset': {'type': 'spy.Data', 'pipeline': []},
    'test_dataloader.dataset.pipeline': [FIRE],
    'model.backbone ': HUB,
    'model.neck ': {'type': 'mmpretrain.HuggingFaceClassifier', 'model_name': 'nothing', 'pretrained': True},
    'model.auxiliary_head': {'type': 'mmpretrain.AutoModelForCausalLM', 'name_or_path': 'nobody/nothing'},
}
QUIET = [
    'model.neck  of a config', 'model.auxiliary_head of a config',  # without transformers, which is not installed here
    'a template',  # of MMEngine, which stops at it
    'config.pe_type of a record',  # which has a registry of its own
]  # fmt: skip
"""Values that do not fire by themselves."""
# what is put into the record of a backbone
OF_RECORDS = {
    'config.act_cfg': FIRE,
    'config.norm_cfg': {'type': 'spy.Norm'},
    'config ': HUB,
    'config.pe_type': [{'type': 'spy.PE'}],
}
OTHER = '--cfg-options model.backbone.arch.embed_dims=64'  # so that the file is read, and not exported
# each command that reads files or folders of others: its line, and what is put into the place of {}
FILES, RUNS = ('pth', 'safetensors'), ('run',)
WALK = {
    'checkpoint average': ('{} {} --out out.pth', FILES),
    'checkpoint convert': ('{} out.pth --to mmlape', FILES),
    'checkpoint inspect': ('{}', (*FILES, 'address', 'hub')),
    'checkpoint publish': ('{} out.safetensors', (*FILES, 'pth in a run', 'hub')),
    'export-onnx': (f'config.py {{}} --size 32 --out x.onnx {OTHER}', ('pth',)),
    'few-shot': ('config.py {} --work-dir out', ('pth',)),
    'plot-grad-norms': ('{} --out x.png', RUNS),
    'predict': ('{} data/images/validation --out out', ('pth', 'dict', 'address', 'run', 'hub')),
    'probe': ('{} --images data/images/validation --out out', ('pth', 'address', 'run', 'hub')),
    'report': ('{} --out out', RUNS),
    'sample-size': ('{} --difference 1', RUNS),
    'size-sweep': ('{} --sizes 32 --out out', RUNS),
    'status': ('{}', RUNS),
    'test': ('config.py {} --work-dir out', (*FILES, 'hub')),
    'train': ('config.py --resume {} --work-dir out', ('pth',)),
    'visualize-pe': ('{} --out out', (*FILES, 'address', 'run', 'hub')),
}
NOT_WALKED = {'vtab': 'starts `train` from a file'}
READS = {'checkpoint', 'file', 'files', 'models', 'src', 'trained', 'work_dir', 'work_dirs'}
"""Positional arguments that name files or folders of others."""


@pytest.fixture(scope='module')
def good(tmp_path_factory):
    """A small segmentor: its folder with data and config, its weights and what they record."""
    folder = tmp_path_factory.mktemp('good')
    data = tiny.write_data(folder / 'data', train=1, val=2)
    cfg = load_config(tiny.write_config(folder, data, RESIZE, 'config'))
    model = build_model(cfg)
    return SimpleNamespace(folder=folder, cfg=cfg, weights=model.state_dict(), record=metadata_of(model).plain())


@pytest.fixture
def world(good, tmp_path, monkeypatch):
    """A working folder with a module that tells when it is imported, and the hosts that are asked for."""
    asked = []

    def refuse(host, *args, **kwargs):
        if host not in ('127.0.0.1', b'127.0.0.1'):
            sys.audit('socket.getaddrinfo', host)
            asked.append(host)
            raise OSError(f'{host} is asked for')
        return resolve(host, *args, **kwargs)

    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, 'getaddrinfo', refuse)
    monkeypatch.setattr(huggingface_hub, 'hf_hub_download', refuse)  # it would try for half a minute
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
    monkeypatch.setattr(yapf_api, 'FormatCode', lambda text, **options: (text, True))  # it takes seconds
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    for name in ('data', 'config.py'):
        Path(name).symlink_to(good.folder / name)
    return asked


def put(values, place, value):
    """Return a copy of nested dicts with a value at a dotted key."""
    values = copy.deepcopy(values)
    *parts, last = place.strip().split('.')
    node = functools.reduce(lambda inner, part: inner[part], parts, values)
    node[last] = value
    return values


def write(form, good, text=None, record=None, classes=tiny.CLASSES, prefix=''):
    """Write a file, or the folder of a run, that holds a config and a record of the backbone."""
    text = good.cfg.pretty_text if text is None else text
    record = good.record if record is None else record
    weights = {
        prefix + name.removeprefix('backbone.' if prefix else ''): value for name, value in good.weights.items()
    }
    if form == 'safetensors':
        save_file(weights, 'a.safetensors', {KEY: json.dumps(record)})
        return 'a.safetensors'
    if form == 'hub':  # of which the client has a copy in its cache
        folder = Path('hub/models--nobody--evil')
        (folder / 'snapshots' / 'a').mkdir(parents=True, exist_ok=True)
        (folder / 'refs').mkdir(exist_ok=True)
        (folder / 'refs' / 'main').write_text('a')
        file = folder / 'snapshots' / 'a' / 'model.safetensors'
        save_file(weights, file, {KEY: json.dumps(record), 'cfg': text})
        return 'hf://nobody/evil'
    folder = Path('run' if 'run' in form else 'files')
    folder.mkdir(exist_ok=True)
    held = good.cfg.to_dict() if form == 'dict' else text
    file = folder / 'iter_6.pth'
    torch.save({'state_dict': weights, 'meta': {'cfg': held, 'dataset_meta': {'classes': classes}, KEY: record}}, file)
    if folder.name == 'run':
        (folder / 'tiny.py').write_text(text)
        last = {'step': 6, 'metrics': {'mIoU': 1.0}}
        run = dict(state='finished', iter=6, max_iters=6, config='tiny.py', seed=1, last=last)
        (folder / 'run.json').write_text(json.dumps(run))
    return str(folder if form == 'run' else file)


def fired(asked):
    """Return whether something ran, was imported or was asked for since the last time."""
    found = has_fired('CompactTransformer', 'mc', 'patch', 'rope') or bool(asked)
    asked.clear()
    return found


OPENED = {
    'predict FILE': ('pth', lambda path: mmlape.load(path, device='cpu')),
    'predict hf://': ('hub', lambda path: mmlape.load(path, device='cpu')),
    'predict RUN': ('run', lambda path: mmlape.load(Path(path), device='cpu')),
    'visualize-pe RUN': ('run', open_model),
    'visualize-pe FILE': ('pth', open_model),
    'visualize-pe FILE.safetensors': ('safetensors', open_model),
}
"""What builds of a file: all commands and functions that do call one of these."""


def hostile(good):
    """Yield names, texts of configs and records with one hostile value each."""
    for place, value in OF_CONFIGS.items():
        values = put(good.cfg.to_dict(), place, value)
        yield f'{place} of a config', Config(values).pretty_text, None
    for name, more in {
        'code': SPY,
        'a call': "x = __import__('os').system('touch canary')\n",
        'a template': '',
        'imports': "custom_imports = dict(imports=['spy'])\n",
    }.items():
        yield name, more + good.cfg.pretty_text, None
    for place, value in OF_RECORDS.items():
        record = copy.deepcopy(good.record)
        (name,) = record['backbones']
        record['backbones']['backbone'] = put(record['backbones'].pop(name), place, value)
        text = Config(dict(model=dict(type='EncoderDecoder'))).pretty_text
        yield f'{place} of a record', text, record


def test_each_value_fires_without_the_gate_and_is_refused_by_it(good, world, monkeypatch, capsys):
    harmless = ('a template', 'imports')
    quiet = []
    for name, text, record in hostile(good):
        fires = False
        for entry, (form, open_file) in OPENED.items():
            if (record is None) != (entry in ('predict FILE', 'predict hf://', 'predict RUN', 'visualize-pe RUN')):
                continue
            path = write(form, good, text, record, (), 'vit.' if 'timm' in str(record).lower() else '')
            is_built = True
            try:
                open_file(path)
            except MMLaPEError as error:
                is_built = False
                assert '\n' not in str(error) and str(path) in str(error), (name, entry, error)
            assert not fired(world), (name, entry)
            if fires and not is_built:
                continue
            with monkeypatch.context() as patch, contextlib.suppress(Exception, SystemExit):
                patch.setattr(opening, '_trusted', True)
                open_file(path)
            fires_here = fired(world)
            assert not (is_built and fires_here) or name in harmless, (name, entry, 'is built')
            fires |= fires_here
        quiet += [] if fires else [name]
    assert quiet == QUIET


NUMBER = "float32 if open('canary', 'w').close() else 0"
R18 = dict(type='mmdet.ResNet', depth=18, out_indices=[3])
HEAD = dict(
    type='mmdet.ATSSHead',
    num_classes=3,
    in_channels=512,
    stacked_convs=1,
    feat_channels=32,
    anchor_generator=dict(
        type='mmdet.AnchorGenerator', ratios=[1.0], octave_base_scale=8, scales_per_octave=1, strides=[8]
    ),
    bbox_coder=dict(type='mmdet.DeltaXYWHBBoxCoder'),
)
STUDENT = dict(_scope_='mmdet', type='ATSS', backbone=R18, neck=None, bbox_head=HEAD)
KD = dict(STUDENT, type='KnowledgeDistillationSingleStageDetector')
LAD = dict(STUDENT, type='LAD', teacher_backbone=R18, teacher_neck=None, teacher_bbox_head=HEAD)
MC = dict(backend='memcached', server_list_cfg='a', client_cfg='b', sys_path='more')
OPENED_BY_TYPES = {
    'eval of a dtype': ('TRANSFORMS', dict(type='torchvision/ConvertImageDtype', dtype=NUMBER)),
    'import of a store': ('TRANSFORMS', dict(type='LoadImageFromFile', backend_args=MC)),
    'pickles as images': ('TRANSFORMS', dict(type='mmseg.LoadBiomedicalImageFromFile', decode_backend='pickle')),
    'pickles as weights of classes': ('MODELS', dict(type='mmseg.CrossEntropyLoss', class_weight='pkl')),
    'pickles as annotations': ('DATASETS', dict(type='mmseg.DecathlonDataset', ann_file='evil.pkl', pipeline=[])),
    'pickles as references': (
        'DATASETS',
        dict(
            type='mmdet.RefCocoDataset',
            data_root='',
            ann_file='a.json',
            split_file='evil',
            data_prefix={'img_path': ''},
        ),
    ),
    'an import by a word': (
        'MODELS',
        dict(type='mmseg.TIMMBackbone', model_name='test_vit', pretrained=False, norm_layer='spy'),
    ),
    'an address by default': ('METRICS', dict(type='mmdet.CocoOccludedSeparatedMetric')),
    'an address': ('METRICS', dict(type='mmdet.CocoMetric', ann_file='http://nobody.example/x.json')),
    'a folder': ('METRICS', dict(type='mmseg.IoUMetric', output_dir='canary')),
    'a file': ('METRICS', dict(type='DumpResults', out_file_path='canary.pkl')),
    'a download by default': ('DATASETS', dict(type='mmpretrain.CIFAR10', data_root='files', pipeline=[])),
    'a download': ('DATASETS', dict(type='mmpretrain.MNIST', data_root='files', pipeline=[], download=True)),
    'weights by default': ('MODELS', dict(type='mmseg.TIMMBackbone', model_name='resnet18')),
    'the weights of a teacher': ('MODELS', dict(KD, teacher_config=dict(model=STUDENT), teacher_ckpt='evil')),
    'the config of a teacher': ('MODELS', dict(KD, teacher_config='patch.py')),
    'weights of a teacher that are always loaded': ('MODELS', dict(LAD, teacher_ckpt='evil')),
    'a module': ('MODELS', dict(type='spy')),
    'a module of a kind': ('MODELS', dict(type='rope')),
    'a module of a word': ('MODELS', dict(type='patch')),
    'a module named as a model of another scope': ('MODELS', dict(type='CompactTransformer')),
}
"""What opens, calls or writes though a registry holds its type, with the registry that builds it."""


def test_no_type_of_a_registry_opens_what_a_value_names(world, monkeypatch):
    monkeypatch.setattr('timm.models._hub.hf_hub_download', lambda *args, **kwargs: world.append('a hub'))
    Path('more').mkdir()
    for file in ('rope.py', 'patch.py', 'CompactTransformer.py', 'more/mc.py'):
        Path(file).write_text(SPY)
    Path('a.json').write_text('{}')
    for file in ('evil', 'evil.pkl', 'image.png', 'pkl'):
        Path(file).write_bytes(pickle.dumps(Payload()))
    init_default_scope('mmpretrain')
    for name, (key, value) in each(OPENED_BY_TYPES.items()):
        with monkeypatch.context() as trusting:  # where MMEngine's loader is guarded already
            trusting.setattr(opening, '_trusted', True)
            build(key, copy.deepcopy(value))
        assert fired(world), name
        with contextlib.suppress(MMLaPEError):
            nested = {'pipeline': value} if key == 'TRANSFORMS' else {'part': value}
            (taken,) = gate.admit(nested, 'a', (key, 'TASK_UTILS'), 'mmpretrain').values()
            with closed():
                build(key, taken)
        assert not fired(world), name


def build(key, value):
    """Build an object and let it read an image, or write its results."""
    with contextlib.suppress(Exception):
        built = getattr(registry, key).build(value)
        if key == 'TRANSFORMS':
            built(dict(img_path='image.png'))
        elif 'Dump' in value['type']:
            built.compute_metrics([{}])


def our_names():
    """Yield each name that our own constructors take, with its key: of each table that they check it against."""
    for kinds in (POSITION_ENCODINGS, JOININGS):
        kinds.import_from_location()
    yield from (('norm_placement', placement) for placement in placements())
    yield from (('norm_placement', dict(type=name)) for name in (*PLACES, *METHODS))
    yield from (('tokenizer', dict(type=name)) for name in TOKENIZERS)
    yield from (('norm_cfg', dict(type=name)) for name in NORMS)
    yield from (('act_cfg', dict(type=name)) for name in ACTIVATIONS)
    for key, names in (('pe_type', (*POSITION_ENCODINGS.module_dict, 'none')), ('pe_joining', JOININGS.module_dict)):
        for name in names:
            yield from ((key, name), (key, dict(type=name)), (key, [name, dict(type=name)]))
    for name in timm.list_models() + timm.list_pretrained():
        yield from (('model_name', name), ('timm_model', name))
    yield from (('patch_norm', name) for name in PATCH_NORMS)
    yield from (('pe_norm', name) for name in PE_NORMS)
    yield from (('ffn_type', name) for name in FFN_TYPES)
    yield from (('interpolate_mode', name) for name in RESIZE_MODES)
    yield from (('arch', name) for model in (VisionTransformer, SwinTransformer) for name in model.archs)


def test_every_name_of_our_own_passes():
    for key, value in our_names():
        assert gate.admit({key: value}, 'a', known=(*NORMS, *ACTIVATIONS)) == {key: value}


def readers():
    """Yield each command, with its action, whose arguments name files or folders of others."""
    for command in COMMANDS:
        parser = fill_parser(argparse.ArgumentParser(), command)
        actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        children = {f'{command} {name}': child for name, child in actions[0].choices.items()} if actions else {}
        for name, child in (children or {command: parser}).items():
            positional = {action.dest for action in child._actions if not action.option_strings}
            if '--trust-checkpoint' in child._option_string_actions or positional & READS:
                yield name


def test_the_walk_has_every_command_that_reads_what_others_made():
    assert sorted(readers()) == sorted([*WALK, *NOT_WALKED])


@pytest.mark.parametrize('command', WALK)
def test_no_command_runs_what_a_file_holds(command, good, world, capfd):
    line, forms = WALK[command]
    text = Config(put(good.cfg.to_dict(), 'model.backbone.act_cfg', FIRE)).pretty_text + SPY
    record = copy.deepcopy(good.record)
    (name,) = record['backbones']
    record['backbones'][name]['config'] = dict(HUB, act_cfg=FIRE)
    for form in forms:
        with served(Path.cwd()) as (host, _):
            path = write(form, good, text, record)
            path = f'{host}/{path}' if form == 'address' else path
            status = main([*command.split(), *line.replace('{}', path).split()])
        printed = capfd.readouterr().err
        assert not fired(world), (command, form)
        assert 'Traceback' not in printed
        assert status in (0, 1) and (status == 0 or printed.count('mmlape: error:') == 1), (form, printed)
        if command in ('predict', 'size-sweep', 'visualize-pe'):
            assert status == 1, form
        shutil.rmtree('out', ignore_errors=True)
        for file in Path().glob('out*'):
            file.unlink()


LARGE = {
    'layers': ('model.backbone.arch.num_layers', 10**9),
    'many layers': ('model.backbone.arch.num_layers', 10**5),
    'width': ('model.backbone.arch.embed_dims', 10**7),
    'wide': ('model.backbone.arch', dict(embed_dims=2**14, num_layers=1, num_heads=2, feedforward_channels=8)),
    'image': ('model.backbone.img_size', 10**6),
    'classes': ('model.decode_head.num_classes', 10**12),
    'depth': ('model.backbone.more', functools.reduce(lambda inner, _: [inner], range(90), [])),
    'scale': ('test_dataloader.dataset.pipeline', [dict(type='Resize', scale=(10**6, 10**6))]),
    'text': ('model.backbone.arch', 'a' * 10**5),
    'object': ('model.backbone.arch', [10.0**300]),
}


def test_a_model_far_larger_than_its_file_is_refused(good, world):
    for name, (place, value) in LARGE.items():
        path = write('pth', good, Config(put(good.cfg.to_dict(), place, value)).pretty_text)
        with pytest.raises(MMLaPEError, match=r'files/iter_6\.pth') as caught:
            mmlape.load(path, device='cpu')
        assert '\n' not in str(caught.value) and len(str(caught.value)) < 600, name
        assert 'far larger' in str(caught.value) or name not in ('many layers', 'wide'), caught.value
    deep = write('pth', good, 'model = ' + '[' * 10**5 + ']' * 10**5)
    with pytest.raises(MMLaPEError, match='no config'):
        mmlape.load(deep, device='cpu')


def test_commands_that_read_no_weights_bound_what_they_build(good, world, capsys):
    """Also how many processes load data, and batches."""
    large = dict(batch_size=10**6, num_workers=10**6, prefetch_factor=10**6)
    path = write('run', good)
    loader = good.cfg.test_dataloader
    Path(path, 'tiny.py').write_text(write_plain(good.cfg.to_dict() | {'test_dataloader': dict(loader, **large)}))
    taken = config_of_run(Path(path, 'tiny.py')).test_dataloader
    assert taken.batch_size <= 10**4 and taken.num_workers <= os.cpu_count() and 'prefetch_factor' not in taken
    for command, (place, value) in (('model-cost', LARGE['many layers']), ('print-params', LARGE['wide'])):
        path = write('run', good, Config(put(good.cfg.to_dict(), place, value)).pretty_text)
        assert main([command, path]) == 1
        assert 'far larger' in capsys.readouterr().err, command


def test_what_inspect_prints_to_be_pasted_is_a_literal(good, world, capsys, monkeypatch):
    """Also of values that the gate would refuse."""
    evil = "');__import__('os').mkdir('canary');('"
    record = copy.deepcopy(good.record)
    (name,) = record['backbones']
    record['backbones'][name]['config'] |= {'patch_norm': evil, 'arch': {evil: evil}}
    monkeypatch.setattr(opening, '_trusted', True)
    assert main(['checkpoint', 'inspect', write('safetensors', good, record=record)]) == 0
    line = capsys.readouterr().out.rpartition('to load it: backbone=')[2]
    assert eval(line, {'__builtins__': {}, 'dict': dict})['arch'] == {evil: evil} and not fired(world)


@pytest.mark.parametrize('step', [3, pytest.param(1, marks=pytest.mark.release)])
def test_what_our_own_runs_write_passes_the_gate(step, world):
    """The config of every recipe, as MMEngine stores it, keeps its model, data and optimiser."""
    for file in each(sorted((tiny.ROOT / 'configs').glob('[!_]*/**/*.py'))[::step]):
        cfg = load_config(file)
        Path('config_of_run.py').write_text(write_plain(cfg.to_dict()))
        taken = config_of_run('config_of_run.py', also=tuple(MORE))
        for key in {*PARTS, *MORE} - {'data_preprocessor'} & cfg.keys():
            if cfg[key]:
                assert kept(taken.to_dict()[key]) == kept(cfg.to_dict()[key])


def kept(node):
    """Return a config without what the gate leaves out."""
    if isinstance(node, dict):
        left_out = (*gate.LEFT_OUT, 'num_workers')
        return {key: kept(value) for key, value in node.items() if key not in left_out}
    return [kept(value) for value in node] if isinstance(node, list | tuple) else node


NAME = 'deit-tiny'


def build_with(path, kind, **options):
    init_cfg = dict(type='Pretrained', checkpoint=path)
    MODELS.build(dict(type=kind, init_cfg=init_cfg, **options)).init_weights()


PYTHON = {
    'get_model': lambda path: mmlape.get_model(NAME, pretrained=path),
    'init_cfg': lambda path: build_with(path, 'mmlape.VisionTransformer', arch=NAME),
    'init_cfg of an adapter': lambda path: build_with(path, 'mmlape.ViTAdapter', arch=NAME),
    'load': lambda path: mmlape.load(path, device='cpu'),
    'load of a config': lambda path: mmlape.load('config.py', path, device='cpu'),
    'load_weights': lambda path: mmlape.load_weights(mmlape.get_model(NAME), path),
    'load_weights of content': lambda path: mmlape.load_weights(mmlape.get_model(NAME), read_checkpoint(path)),
    'load_weights of timm': lambda path: mmlape.load_weights(mmlape.get_model('timm/vit_tiny_patch16_224'), path),
    'load_weights of a segmentor': lambda path: mmlape.load_weights(build_model(load_config('config.py')), path),
    'open_model': open_model,
    'resize_pos_embed': lambda path: mmlape.resize_pos_embed(read_checkpoint(path), 4),
}
"""Functions that take a file, or its content."""


@pytest.mark.parametrize(('form', 'place'), [('pth', ''), ('safetensors', 'backbone')])
def test_no_function_runs_what_a_file_holds(form, place, good, world):
    text = Config(put(good.cfg.to_dict(), 'model.backbone.act_cfg', FIRE)).pretty_text + SPY
    record = copy.deepcopy(good.record)
    (own,) = record['backbones'].values()
    own['config'] |= dict(HUB, act_cfg=FIRE, init_cfg=dict(type='Pretrained', checkpoint='evil'))
    record['backbones'] = {place: own}
    path = write(form, good, text, record)
    if form == 'pth':
        torch.save(dict(torch.load(path, weights_only=True), more=Payload()), 'pickled.pth')
        torch.load('pickled.pth', weights_only=False)
        assert fired(world)
    for entry, open_file in PYTHON.items():
        for file in (path, 'pickled.pth'):
            with contextlib.suppress(MMLaPEError):
                open_file(file)
            assert not fired(world), entry
