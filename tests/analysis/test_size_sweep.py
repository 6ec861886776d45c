"""size-sweep: what it changes in real configs, and the tool on a model of two sizes, interrupted and continued."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from config_helpers import ROOT, build, find, load
from mmengine.config import Config
from mmengine.registry import TRANSFORMS

from mmlape.cli import main
from mmlape.engine.config import load_config
from mmlape.errors import ConfigError
from mmlape.projects.size_sweep import sweep as size_sweep
from mmlape.projects.size_sweep.sweep import at_size, collect, sweep_table
from mmlape.tables import rows_of

RESIZE = """
test_pipeline.insert(1, dict(type='Resize', scale=(32, 32), keep_ratio=True))
"""


def test_segmentation():
    cfg = load(find('upernet', 'tiny', '-lape'))
    changed = at_size(cfg, 256)
    assert changed.test_dataloader.dataset.pipeline[1].scale == (1024, 256)
    assert (changed.model.test_cfg.crop_size, changed.model.test_cfg.stride) == ((256, 256), (170, 170))
    assert tuple(changed.model.data_preprocessor.size) == (256, 256)
    assert cfg.model.test_cfg.crop_size == (512, 512)
    assert changed.model.backbone == cfg.model.backbone


def test_detection():
    changed = at_size(load(find('mask_rcnn', 'tiny', '-lape')), 400)
    resize = next(step for step in changed.test_dataloader.dataset.pipeline if step.type == 'Resize')
    assert resize.scale == (666, 400)


def test_classification():
    changed = at_size(load(ROOT / 'configs/classification/imagenet/deit-tiny-lape_4xb256-300e_in1k.py'), 448)
    sizes = [step.get('scale', step.get('crop_size')) for step in changed.test_dataloader.dataset.pipeline[1:3]]
    assert sizes == [512, 448]


def test_images_of_an_array_are_resized():
    cfg = load(ROOT / 'configs/classification/fashion_mnist/vit-lite-mini_1xb128-5e_fashion-mnist-10k.py')
    steps = at_size(cfg, 42).test_dataloader.dataset.pipeline
    assert [step['type'] for step in steps] == ['mmpretrain.Resize', 'PackInputs'] and steps[0]['scale'] == 42
    image = TRANSFORMS.build(steps[0])(dict(img=np.zeros((28, 28, 1), np.uint8)))['img']
    assert image.shape[:2] == (42, 42)


def test_a_pipeline_without_sizes_is_refused():
    pipeline = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
    cfg = Config(dict(test_dataloader=dict(dataset=dict(pipeline=pipeline)), model=dict()))
    with pytest.raises(ConfigError, match='neither resizes nor crops'):
        at_size(cfg, 32)


def test_checkpoints_of_one_config_are_averaged():
    results = {'a (1)': {28: {'mIoU': 30.0}, 36: {'mIoU': 20.0}}, 'a (2)': {28: {'mIoU': 32.0}, 36: {'mIoU': None}}}
    values = collect(results, 'mIoU', ['a', 'a'])
    assert values == {'a': {28: [30.0, 32.0], 36: [20.0]}}
    assert rows_of(sweep_table(values)) == [('a', 2, '31.00 ± 1.41', '20.00')]


def test_the_cache_gives_what_a_fresh_folder_does(tmp_path, monkeypatch):
    """Whatever changes between two calls: a value of the config, the checkpoint, its content, the sizes."""
    calls = []

    def evaluate(cfg, checkpoint, folder, out):
        calls.append(folder)
        result = json.dumps([cfg.to_dict(), str(checkpoint), Path(checkpoint).read_text()], default=str)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(dict(metrics=dict(of=result))))

    monkeypatch.setattr(size_sweep, 'test', evaluate)
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data', train=1, val=1), RESIZE)
    for name, text in (('a.pth', 'one'), ('b.pth', 'two')):
        (tmp_path / name).write_text(text)
    first = load_config(config)
    changes = ['model.backbone.pe_joining=default', 'model.test_cfg.more=1', 'test_dataloader.batch_size=3']
    others = [load_config(config, [change]) for change in changes if 'more' not in change]
    for number, (cfg, name, content, sizes) in enumerate((
        (first, 'a.pth', 'one', (24, 32)),
        *((other, 'a.pth', 'one', (24, 32)) for other in others),
        (first, 'b.pth', 'two', (32,)),
        (first, 'a.pth', 'new content', (32, 40)),
        (first, 'a.pth', 'one', (24, 32)),
        (first, 'a.pth', 'six', (24, 32)),
    )):  # fmt: skip
        file = tmp_path / name
        if file.read_text() != content:
            file.write_text(content)
            os.utime(file, (number, number))
        found = size_sweep.sweep(cfg, str(file), sizes, tmp_path / 'kept')
        assert found == size_sweep.sweep(cfg, str(file), sizes, tmp_path / f'fresh{number}')
        done = len(calls)
        assert size_sweep.sweep(cfg, str(file), sizes, tmp_path / 'kept') == found and len(calls) == done


@tiny.in_a_fork
def test_the_tool(tmp_path, python):
    data = tiny.write_data(tmp_path / 'data', train=1, val=2)
    config = tiny.write_config(tmp_path, data, RESIZE)
    torch.save(build(Config.fromfile(config)).state_dict(), tmp_path / 'model.pth')
    command = [
        *tiny.MMLAPE,
        'size-sweep',
        config,
        'model.pth',
        config,
        'model.pth',
        '--sizes',
        32,
        24,
        '--out',
        'sweep',
    ]
    first = tiny.run(*command, cwd=tmp_path)
    assert 'tiny (1): size 24, 1 of 2' in first and 'mIoU by the shorter side' in first
    found = json.loads((tmp_path / 'sweep/size_sweep.json').read_text())
    assert list(found) == ['tiny (1)', 'tiny (2)'] and found['tiny (1)'] == found['tiny (2)']
    assert found['tiny (1)']['24']['mIoU'] != found['tiny (1)']['32']['mIoU']
    assert (tmp_path / 'sweep/size_sweep.png').stat().st_size > 5000
    (tmp_path / 'sweep/tiny (2)/size_32/metrics.json').unlink()
    again = tiny.run(*command, cwd=tmp_path, **python)
    assert 'tiny (2): size 32' in again and 'tiny (1): size' not in again and 'tiny (2): size 24' not in again
    assert json.loads((tmp_path / 'sweep/size_sweep.json').read_text()) == found


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['a.py'], 'a.py has no second'),
        (['a.py', 'b.pth', '--sizes', '0'], 'from 1 on, not 0'),
        (['a.py', 'b.pth'], 'checkpoint b.pth: no such file'),
    ],
)
def test_wrong_input(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = [] if '--sizes' in arguments else ['--sizes', '32']
    assert main(['size-sweep', *arguments, *sizes, '--out', 'x']) == 1
    assert words in capsys.readouterr().err
