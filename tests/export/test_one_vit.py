"""Several models over one frozen ViT, which runs once: files and outputs are those of each model alone."""

import copy
import json
import shutil

import numpy as np
import onnx
import pytest
import tiny
import torch
from each import each
from timm.layers import PatchEmbed

from mmlape.cli import main
from mmlape.console.terminal import file_size
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.prediction import init_model, predict_batch
from mmlape.lab.inference.trained_model import trained_words
from mmlape.lab.training.frozen.shared import SharedPart

VIT = "model_name='vit_tiny_patch16_224', img_size=32, model_args=dict(embed_dim=24, depth=2, num_heads=3)"
PLAIN = f"dict(type='mmlape.TimmViT', frozen=True, patch_size=8, {VIT})"
READ_ONLY = f"""dict(
    type='mmlape.TimmViTAdapter', mode='read-only', conv_inplane=4, deform_num_heads=2,
    vit=dict(frozen=True, {VIT.replace('depth=2', 'depth=4')}),
)"""
EXTRA = """
model['backbone'] = {backbone}
model['decode_head'].update(in_channels=24, norm_cfg=dict(type='BN'))
test_pipeline.insert(1, dict(type='Resize', scale=(32, 32)))
"""


def models_over_one_vit(folder, data, backbone):
    """Return a config, and two models of it by name."""
    cfg = load_config(tiny.write_config(folder, data, EXTRA.format(backbone=backbone)))
    models = {name: init_model(cfg, None, 'cpu') for name in 'ab'}
    models['b'].backbone.vit.load_state_dict(models['a'].backbone.vit.state_dict())
    with torch.no_grad():  # far from a draw
        for model in models.values():
            model.decode_head.conv_seg.weight.mul_(30)
    return cfg, models


@pytest.fixture(scope='module')
def case(tmp_path_factory):
    """Two files of models whose frozen ViT is the same, in a folder, and the folder of images."""
    folder = tmp_path_factory.mktemp('models')
    data = tiny.write_data(folder / 'data', train=1, val=2)
    cfg, models = models_over_one_vit(folder, data, PLAIN)
    for name, model in models.items():
        meta = dict(cfg=cfg.pretty_text, dataset_meta=dict(classes=list(model.classes)))
        torch.save(dict(state_dict=model.state_dict(), meta=meta), folder / f'{name}.pth')
    return models, folder, data / 'images/validation'


@pytest.fixture
def passes(monkeypatch):
    """The number of images in each pass of a ViT."""
    counts, forward = [], PatchEmbed.forward

    def counted(self, images):
        counts.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(PatchEmbed, 'forward', counted)
    return counts


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def test_files_are_those_of_each_model_alone(case, tmp_path, passes):
    _, folder, images = case
    models = [str(folder / 'a.pth'), str(folder / 'b.pth')]
    windows = "model.test_cfg={'mode':'slide','crop_size':(24,24),'stride':(16,16)}"
    for number, options in enumerate(each([('--tile', '16', '--batch-size', '3'), ('--cfg-options', windows)])):
        passes.clear()
        out = tmp_path / str(number)
        assert main(['predict', *models, str(images), '--out', str(out / 'both'), *options]) == 0
        together = sum(passes)
        for model, name in zip(models, 'ab'):
            assert main(['predict', model, str(images), '--out', str(out / name), *options]) == 0
            assert contents(out / name) == contents(out / 'both' / name)
        assert sum(passes) == 3 * together and contents(out / 'a') != contents(out / 'b')


@pytest.mark.parametrize('backbone', [PLAIN, READ_ONLY], ids=['plain', 'read-only'])
def test_logits_are_those_of_each_model_alone_to_the_bit(backbone, tmp_path, passes):
    _, models = models_over_one_vit(tmp_path, tiny.write_data(tmp_path / 'data', train=1, val=1), backbone)
    image = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    inputs = [models['a'].preparation.of_array(image)] * 2
    alone = [predict_batch(model, inputs)[1].seg_logits.data for model in models.values()]
    passes.clear()
    with SharedPart(models).running_once():
        for _ in range(2):
            together = [predict_batch(model, inputs)[1].seg_logits.data for model in models.values()]
            assert all(map(torch.equal, together, alone)) and not torch.equal(*alone)
        assert passes == [2, 2]
        other = [models['a'].preparation.of_array(image.transpose(1, 0, 2))]
        predict_batch(models['a'], other)  # the other model gets another image
        assert torch.equal(predict_batch(models['b'], inputs)[1].seg_logits.data, alone[1])


def test_one_graph_has_the_outputs_of_each_model_and_one_vit(case, tmp_path, capsys):
    _, folder, images = case
    models, graph = [str(folder / 'a.pth'), str(folder / 'b.pth')], tmp_path / 'model.onnx'
    assert main(['export-onnx', *models, '--size', '32', '--out', str(tmp_path)]) == 0
    assert f'wrote {graph}: one image of 32 x 32, {file_size(graph.stat().st_size)}; ' in capsys.readouterr().out
    content = onnx.load(graph).graph
    assert [output.name for output in content.output] == ['a/logits', 'b/logits']
    assert sum(node.op_type == 'Softmax' for node in content.node) == 2  # one for each layer of the ViT
    about = json.loads((tmp_path / 'model.json').read_text())['models']
    assert list(about) == ['a', 'b'] and about['b']['classes'] == ['left', 'right', 'below']
    assert main(['export-onnx', *models[::-1], '--check', str(images), '--graph', str(graph)]) == 0


def test_what_differs_is_named(case, tmp_path, capsys):
    models, folder, _ = case
    changes = {
        r'data_preprocessor\.mean\.0 is 1\.0 and 127\.5': lambda model: model.cfg.model.data_preprocessor.update(
            mean=[1.0] * 3
        ),
        'pipeline.* is 48 and 32': lambda model: model.cfg.test_pipeline[1].update(scale=(48, 48)),
        'windows.mode is': lambda model: model.cfg.model.test_cfg.update(mode='slide'),
        'img_size is 48 and 32': lambda model: model.cfg.model.backbone.update(img_size=48),
        r'blocks\.1\.attn\.qkv\.bias differs': lambda model: model.backbone.vit.blocks[1].attn.qkv.bias.add_(1e-6),
        'have not the same frozen parts': lambda model: model.backbone.vit.norm.requires_grad_(True),
    }
    for reason, change in each(changes.items()):
        changed = copy.deepcopy(models['b'])
        with torch.no_grad():
            change(changed)
        with pytest.raises(ConfigError, match=f'b and a.*{reason}'):
            SharedPart({'a': models['a'], 'b': changed})
    with pytest.raises(ConfigError, match='a: no part of its model is frozen'):
        SharedPart({'a': copy.deepcopy(models['a']).requires_grad_(True), 'b': models['b']})
    words = ['export-onnx', str(folder / 'a.pth'), str(folder / 'b.pth'), '--backbone', '--out', str(tmp_path / 'x')]
    assert main(words) == 1 and 'give --out without --backbone' in capsys.readouterr().err


def test_models_of_one_run_need_folders_of_their_own(case, monkeypatch, tmp_path, capsys):
    """The same folder by two names is one."""
    _, folder, images = case
    (tmp_path / 'run').mkdir()
    for name in 'ab':
        shutil.copy(folder / f'{name}.pth', tmp_path / 'run')
    (tmp_path / 'run/run.json').write_text('{}')
    (tmp_path / 'link').symlink_to(tmp_path / 'run')
    assert main(['predict', str(tmp_path / 'run/a.pth'), str(tmp_path / 'link/b.pth'), str(images)]) == 1
    assert 'are of no folders of their own' in capsys.readouterr().err


def test_words_name_one_model_or_several(tmp_path):
    for run in ('a/seed_1', 'b/seed_1', 'b/seed_2'):
        (tmp_path / run).mkdir(parents=True)
    first, second, third = (str(tmp_path / run) for run in ('a/seed_1', 'b/seed_1', 'b/seed_2'))
    for words, expected in each(
        {
            (first,): [''],
            (first, 'm.pth'): [''],
            ('c.py', 'm.pth'): [''],
            ('m.pth', 'c.py'): [''],  # refused where it is opened
            (first, second): ['a-seed_1', 'b-seed_1'],
            (second, third): ['seed_1', 'seed_2'],
            ('x/m.pth', 'y/m.pth', 'y/n.pth'): ['x-m', 'y-m', 'y-n'],
            ('c.py', 'x/m.pth', 'hf://o/n'): ['x-m', 'hf:-o-n'],
            (first, f'{first}/m.pth', second): ['a-seed_1-m', 'b-seed_1'],
            ('hf://o/m-1.0', 'hf://o/m-1.1'): ['m-1.0', 'm-1.1'],
        }.items()
    ):
        found = trained_words(words)
        assert list(found) == expected and [word for named in found.values() for word in named] == list(words)
    with pytest.raises(ConfigError, match='two models have the name m'):
        trained_words(['m.pth', 'm.pth'])
