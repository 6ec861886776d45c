"""The files of the tutorial on position encodings: kinds of a user go through every tool, the package unchanged."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import tiny
import torch
from checkpoint_helpers import run_file

from mmlape.lab.runs.identity import paper_model
from mmlape.lab.runs.schema import Identity
from mmlape.models import SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.registry import JOININGS, MODELS, POSITION_ENCODINGS

MODULES = ('my_positions', 'my_joining', 'my_backbone')
ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)
OWN = dict(pe_type=['fourier', 'distance'], pe_joining='query-key')


@pytest.fixture(scope='module')
def project(tmp_path_factory) -> Path:
    """A user's folder: the tutorial's files, a base config on the tiny data, and the tutorial's last config on it."""
    folder = tmp_path_factory.mktemp('project')
    text = (tiny.ROOT / 'docs' / 'tutorials' / 'position-encoding.md').read_text()
    files = dict(re.findall(r'```python\n# (\w+\.py)\n(.*?)```', text, re.DOTALL))
    assert set(files) == {f'{name}.py' for name in (*MODULES, 'my_vit', 'my_config')}
    base, narrow = r"_base_ = '.*'", r'embed_dims=128,\n +num_heads=4'
    for name, code in files.items():
        (folder / name).write_text(re.sub(narrow, 'embed_dims=32', re.sub(base, "_base_ = './base.py'", code)))
    tiny.write_config(folder, tiny.write_data(folder / 'data'), name='base')
    return folder


@pytest.fixture
def imported(project, monkeypatch):
    """The user's modules in this process; the registries are as before afterwards."""
    registries = (POSITION_ENCODINGS, JOININGS, MODELS)
    before = [dict(registry.module_dict) for registry in registries]
    monkeypatch.syspath_prepend(str(project))
    for name in MODULES:
        importlib.import_module(name)
    yield
    for registry, modules in zip(registries, before, strict=True):
        registry.module_dict.clear()
        registry.module_dict.update(modules)
    for name in MODULES:
        sys.modules.pop(name)


def run(project: Path, *command: object) -> str:
    """A sub-command of ``mmlape``."""
    return tiny.run(*tiny.MMLAPE, *command, cwd=project, PYTHONPATH=f'{tiny.ROOT}:{project}')


@pytest.fixture(scope='module')
def trained(project) -> Path:
    """The project after a run of six iterations, and after one that was resumed from its third."""
    run(project, 'train', 'my_config.py', '--seed', 1, '--log-grad-norm', '--work-dir', 'complete')
    run(project, 'train', 'my_config.py', '--seed', 1, '--resume', project / 'complete' / 'iter_3.pth')
    return project


def test_training_moves_the_users_parameters_and_resumes(trained):
    resumed = trained / 'work_dirs' / 'my_config' / 'iter_6.pth'
    assert tiny.difference(resumed, trained / 'complete' / 'iter_6.pth') == 0
    states = [torch.load(trained / 'complete' / f'iter_{k}.pth', weights_only=False)['state_dict'] for k in (3, 6)]
    slopes = [key for key in states[0] if key.endswith('attn.slope')]
    assert len(slopes) == 2
    assert all(not torch.equal(states[0][key], states[1][key]) for key in slopes)
    logged = next((trained / 'complete').glob('*/vis_data/scalars.json')).read_text()
    assert 'grad_norm/blocks.1' in logged and 'grad_norm/patch_embed' in logged


def test_inspect_and_load(trained):
    file = trained / 'work_dirs' / 'my_config' / 'iter_6.pth'
    printed = run(trained, 'checkpoint', 'inspect', file, '--import', *MODULES)
    assert "type='mmlape.ConvStemViT'" in printed and 'ConvStemViT' in printed.split('layout')[1]
    assert 'query-key' in printed, 'its joining is recorded'
    init = f"model.backbone.init_cfg=dict(type='Pretrained',checkpoint='{file}')"
    log = run(trained, 'train', 'my_config.py', '--seed', 2, '--work-dir', 'tuned', '--cfg-options', init,
              'train_cfg.max_iters=3')  # fmt: skip
    found = re.search(rf'checkpoint {file} \(ConvStemViT layout\): loaded (\d+) of (\d+)', log)
    assert found and found[1] == found[2]


def test_draw_count_export_and_evaluate(trained):
    file = 'work_dirs/my_config/iter_6.pth'
    run(trained, 'visualize-pe', f'my_config.py@{file}', '--out', 'pe')
    assert (trained / 'pe' / 'position_correlation.png').stat().st_size > 10_000
    assert 'backbone' in run(trained, 'model-cost', 'my_config.py')
    assert 'slope' in run(trained, 'print-params', 'my_config.py', '--cfg-options',
                          'optim_wrapper.constructor=mmlape.LayerDecayOptimWrapperConstructor',
                          'optim_wrapper.paramwise_cfg=dict(_delete_=True,layer_decay_rate=0.5)')  # fmt: skip
    run(trained, 'export-onnx', 'my_config.py', file, '--size', 32, 48, '--backbone', '--out', 'backbone.onnx')
    assert (trained / 'backbone.onnx').is_file()
    run(trained, 'test', 'my_config.py', file, '--out', 'metrics.json')
    assert 'mIoU' in json.loads((trained / 'metrics.json').read_text())['metrics']


def test_the_report_names_them(trained):
    printed = run(trained, 'report', 'complete', '--out', 'report')
    assert 'complete' in printed
    model = json.loads((trained / 'report' / 'report.json').read_text())['arms']['complete']['model']
    assert model['name'].endswith(' ConvStemViT') and model['pretrained'] == 'none'
    assert (model['method'], model['plain']) == ('QueryKeyJoining, Fourier + Distance', False)


@pytest.mark.usefixtures('imported')
@pytest.mark.parametrize(
    ('options', 'method'),
    [
        (dict(pe_type='distance'), 'Distance'),
        (dict(pe_type=['learnable', 'distance']), 'Default + Distance'),
        (dict(pe_type='fourier', pe_joining='lape'), 'LaPE, Fourier'),
        (dict(pe_joining='query-key'), 'QueryKeyJoining'),
    ],
)
def test_tables_call_them_by_their_classes(options, method):
    backbone = dict(type='mmlape.ConvStemViT', **options)
    model = paper_model('x', Identity(settings={'model': dict(type='mmpretrain.ImageClassifier', backbone=backbone)}))
    assert (model.name, model.method, model.plain) == ('ConvStemViT', method, False)


@pytest.mark.usefixtures('imported')
def test_our_own_backbones_take_the_users_kinds(tmp_path):
    from mmlape.checkpoint import load_backbone
    from mmlape.checkpoint.converting import inspect

    model = VisionTransformer(ARCH, 32, 8, **OWN).eval()
    names = {name for name, _ in model.named_parameters()}
    assert 'blocks.0.attn.slope' in names and 'pos_embed' not in names and 'pos_embed' in model.state_dict()
    found = inspect(run_file(tmp_path / 'vit.pth', model))
    assert found['pe_type'] == ['fourier', 'distance'] and 'query-key' in found['pe_joining']
    torch.save(model.state_dict(), tmp_path / 'vit.pth')
    other = VisionTransformer(ARCH, 48, 8, **OWN)
    report = load_backbone(other, str(tmp_path / 'vit.pth'))
    assert len(report.loaded) == report.total and report.resized == {'pos_embed': '4x4 -> 6x6'}
    torch.testing.assert_close(other.pos_embed, VisionTransformer(ARCH, 48, 8, **OWN).pos_embed)

    windowed = ViTAdapter(ARCH, 64, conv_inplane=8, deform_num_heads=2, window_attn=True, window_size=2, **OWN).eval()
    assert windowed(torch.randn(1, 3, 64, 96))[0].shape == (1, 32, 16, 24)
    stages = dict(embed_dims=12, depths=(2, 1), num_heads=(2, 4))
    shifted = SwinTransformer(stages, 32, window_size=4, out_type='featmap', **OWN).eval()
    assert shifted(torch.randn(1, 3, 36, 64))[0].shape == (1, 24, 5, 8)


@pytest.mark.usefixtures('imported')
def test_values_do_not_see_the_pe_of_a_query_key_joining():
    model = VisionTransformer(ARCH, 32, 8, out_type='raw', **OWN).eval()
    attn, seen = model.blocks[1].attn, {}
    attn.register_forward_pre_hook(lambda module, args: seen.update(zip(('q', 'k', 'v'), args[0])))
    model.blocks[1].norm1.register_forward_hook(lambda module, args, out: seen.update(tokens=out))
    model(torch.randn(1, 3, 32, 32))
    torch.testing.assert_close(seen['v'], seen['tokens'])
    torch.testing.assert_close(seen['q'] - seen['tokens'], model.pos_embed.expand_as(seen['tokens']))
    x = torch.randn(2, 17, 32)
    torch.testing.assert_close(attn((x, x, x), (4, 4)), attn(x, (4, 4)))
