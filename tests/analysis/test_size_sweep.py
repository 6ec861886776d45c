"""size-sweep: what it changes in real configs, and the tool on a model of two sizes, interrupted and continued."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from config_helpers import ROOT, build, find, load
from data_helpers import digest
from mmengine.config import Config
from mmengine.registry import TRANSFORMS
from mmpretrain.datasets import PackInputs
from mmpretrain.models import ImageClassifier
from scipy.stats import sem, t, ttest_1samp, ttest_ind
from synthetic import write_run

from mmlape.console.tables import header_of, rows_of
from mmlape.errors import ConfigError, DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data, read_options
from mmlape.lab.datasets.mini.objects import ObjectOptions
from mmlape.lab.datasets.retarget import reroot
from mmlape.lab.inference.trained_model import Trained
from mmlape.projects.size_sweep import sweep as size_sweep
from mmlape.projects.size_sweep.command import SCALES
from mmlape.projects.size_sweep.sweep import (
    Swept,
    at_scale,
    at_size,
    build_report,
    draw_canvas,
    read_models,
    sweep_table,
)

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


def test_images_of_an_array_are_resized():
    cfg = load(ROOT / 'configs/compact/vit-lite-mini_1xb128-5e_fashion-mnist-10k.py')
    steps = at_size(cfg, 42).test_dataloader.dataset.pipeline
    assert [step['type'] for step in steps] == ['mmpretrain.Resize', 'PackInputs'] and steps[0]['scale'] == 42
    image = TRANSFORMS.build(steps[0])(dict(img=np.zeros((28, 28, 1), np.uint8)))['img']
    assert image.shape[:2] == (42, 42)


def test_a_class_is_a_type_too():
    cfg = load(ROOT / 'configs/compact/vit-lite-mini_1xb128-5e_fashion-mnist-10k.py')
    pipeline = cfg.test_dataloader.dataset.pipeline
    cfg.model.type, pipeline[-1]['type'] = ImageClassifier, PackInputs
    assert at_size(cfg, 42).test_dataloader.dataset.pipeline[0]['scale'] == 42


def trained(arm, name, seed=None, cfg=None, checkpoint='m.pth'):
    return Swept(arm, seed, name, Trained(cfg, str(checkpoint)))


def test_checkpoints_of_one_config_are_averaged():
    """Over the models that have a value."""
    results = {'a (1)': {28: {'mIoU': 30.0}, 36: {'mIoU': 20.0}}, 'a (2)': {28: {'mIoU': 32.0}, 36: {'mIoU': None}}}
    results |= {'b': {28: {'mIoU': 0.0}, 36: {'mIoU': 5.0}}}
    models = [trained('a', 'a (1)'), trained('a', 'a (2)'), trained('b', 'b')]
    report = build_report(models, results, 'mIoU', 'title')
    found = {
        result.name: {name: entry.values for name, entry in result.summary.last.metrics.items()}
        for result in report.results
    }
    assert found == {
        'a': {'mIoU at 28': {1: 30, 2: 32}, 'mIoU at 36': {1: 20}},
        'b': {'mIoU at 28': {1: 0}, 'mIoU at 36': {1: 5}},
    }
    table = sweep_table(report, 'mIoU', (28, 36))
    assert rows_of(table) == [('a', 2, '31.00', '20.00'), ('b', 1, '0.00', '5.00')]
    with pytest.raises(DataError, match='mIoU is undefined'):
        build_report(models[:1], {'a (1)': {28: {'mIoU': None}}}, 'mIoU', 'title')


def test_a_checkpoint_beside_the_seeds_of_an_arm_of_its_name_replaces_none():
    models = [trained('a', 'a/seed_1', 1), trained('a', 'a/seed_2', 2), trained('a', 'a')]
    results = {model.name: {28: {'mIoU': value}} for model, value in zip(models, (30.0, 40.0, 50.0))}
    (arm,) = build_report(models, results, 'mIoU', 'title').results
    assert arm.summary.last.metrics['mIoU at 28'].values == {1: 30, 2: 40, 3: 50}


def test_arms_are_compared_size_by_size_over_their_seeds():
    """AP is in points; runs of a study are known by their seeds, so that pairs are of one seed."""
    aps = {'rope': {3: 0.40, 5: 0.44, 7: 0.45}, 'fire': {7: 0.36, 3: 0.30, 5: 0.31}}
    results = {
        f'{arm}/seed_{seed}': {24: {'coco/bbox_mAP': ap / 2}, 32: {'coco/bbox_mAP': ap}}
        for arm, seeds in aps.items()
        for seed, ap in seeds.items()
    }
    models = [trained(name.split('/')[0], name, int(name[-1])) for name in results]
    report = build_report(models, results, 'coco/bbox_mAP', 'title')
    (one,) = (pair for pair in report.comparisons if pair.metric == 'box AP at 24')
    assert (one.arm, one.baseline, one.which) == ('fire', 'rope', 'last')
    gains = [50 * (aps['fire'][seed] - aps['rope'][seed]) for seed in (3, 5, 7)]
    assert one.paired.mean == pytest.approx(np.mean(gains))
    assert one.paired.p == pytest.approx(ttest_1samp(gains, 0).pvalue)
    ours, theirs = ([50 * ap for ap in aps[arm].values()] for arm in ('fire', 'rope'))
    assert one.welch.p == pytest.approx(ttest_ind(ours, theirs, equal_var=False).pvalue)
    table = sweep_table(report, 'coco/bbox_mAP', (24, 32))
    cell = dict(zip(header_of(table), rows_of(table)[0], strict=True))['32']
    low, high = t.interval(0.95, 2, np.mean([40, 44, 45]), sem([40, 44, 45]))
    assert cell == f'43.00 [{low:.2f}, {high:.2f}]'


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
    changes = ['model.backbone.pe_joining=default', 'test_dataloader.batch_size=3']
    others = [load_config(config, [change]) for change in changes]
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
        model = trained('a', 'a', cfg=cfg, checkpoint=file)
        found = size_sweep.sweep(model, sizes, at_size, tmp_path / 'kept')
        assert found == size_sweep.sweep(model, sizes, at_size, tmp_path / f'fresh{number}')
        done = len(calls)
        assert size_sweep.sweep(model, sizes, at_size, tmp_path / 'kept') == found and len(calls) == done


# scenes on other canvases


@pytest.fixture
def segmentor(pristine):
    """A config on the mini data, whose canvas of 64 pixels is shown at 32."""
    cfg = load(ROOT / 'configs/segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py')
    for loader in (cfg.test_dataloader, cfg.val_dataloader):
        loader.dataset.data_root = str(pristine / 'ade')
    return cfg


def test_a_larger_canvas_is_seen_at_the_same_scale(segmentor, tmp_path):
    changed = at_scale(segmentor, 1.5, tmp_path)
    dataset = changed.test_dataloader.dataset
    assert dataset.pipeline[1].scale == (192, 192) and tuple(changed.model.data_preprocessor['size']) == (192, 192)
    root = Path(dataset.data_root)
    assert root.name == 'ade' and root.parent.parent == tmp_path
    options = read_options(root.parent)
    own = read_options(Path(segmentor.test_dataloader.dataset.data_root).parent)
    assert (options.size, options.val, options.seed) == ((96, 96), own.val, own.seed)
    assert options.digit_size == own.digit_size and options.per_scene == own.per_scene
    same = at_scale(segmentor, 1, tmp_path)
    assert same.to_dict() == at_size(segmentor, 128).to_dict()


def test_a_detectors_annotations_are_those_of_the_canvas(pristine, tmp_path):
    cfg = load(ROOT / 'configs/mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py')
    text = json.dumps([cfg.test_dataloader, cfg.test_evaluator], default=str)
    before = text.count('data/mini/coco')
    for key in ('test_dataloader', 'test_evaluator'):
        reroot(cfg[key], 'data/mini/coco', str(pristine / 'coco'), set())
    changed = at_scale(cfg, 2, tmp_path)
    text = json.dumps([changed.test_dataloader, changed.test_evaluator], default=str)
    assert before >= 2 and text.count(str(tmp_path)) == before and str(pristine) not in text
    assert Path(changed.test_evaluator.ann_file).is_file()


@pytest.mark.parametrize(
    'options',
    [MiniOptions(), MiniOptions(size=(64, 64), digit_size=(24, 26), digits=0), ObjectOptions()],
    ids=['mini data', 'of the study of canvases', 'objects'],
)
def test_the_scenes_can_be_drawn_at_every_scale_that_is_the_default(options):
    assert {options.on_canvas(scale).size for scale in SCALES} == {
        tuple(round(side * scale) for side in options.size) for scale in SCALES
    }
    with pytest.raises(ConfigError, match=r'a canvas of \d+ x \d+ pixels cannot be drawn, leave 0.1 out \('):
        options.on_canvas(0.1)


def test_drawn_scenes_are_kept_and_are_those_of_a_fresh_folder(pristine, tmp_path, monkeypatch):
    first = draw_canvas(pristine, 1.5, tmp_path / 'kept')
    made = digest(first)
    assert digest(draw_canvas(pristine, 1.5, tmp_path / 'fresh')) == made
    assert draw_canvas(pristine, 2, tmp_path / 'kept') != first
    other = tmp_path / 'other'
    make_mini_data(other, replace(read_options(pristine), seed=3))
    assert draw_canvas(other, 1.5, tmp_path / 'kept') != first
    monkeypatch.setattr(size_sweep, 'make_mini_data', None)
    assert draw_canvas(pristine, 1.5, tmp_path / 'kept') == first and digest(first) == made


# the runs of a study


@pytest.fixture
def work_dir(tmp_path):
    """Two arms as multi-seed leaves them, of three seeds; one run has failed."""
    data = tiny.write_data(tmp_path / 'data', train=1, val=1)
    text = Config.fromfile(tiny.write_config(tmp_path, data, RESIZE)).pretty_text
    for arm in ('rope', 'fire'):
        for seed in (1, 2, 3):
            failed = dict(state='failed', reason='no memory') if (arm, seed) == ('fire', 2) else {}
            folder = write_run(tmp_path / 'runs' / arm, seed, 30.0, **failed)
            (folder / 'config.py').write_text(text)
            for step in (100, 300):
                (folder / f'iter_{step}.pth').touch()
    return tmp_path / 'runs'


def test_all_finished_runs_of_a_work_dir_are_models(work_dir):
    models, skipped = read_models([str(work_dir)])
    names = {model.name: (model.arm, model.seed, model.trained.checkpoint) for model in models}
    assert names == {
        f'{arm}/seed_{seed}': (arm, seed, str(work_dir / arm / f'seed_{seed}' / 'iter_300.pth'))
        for arm, seeds in (('fire', (1, 3)), ('rope', (1, 2, 3)))
        for seed in seeds
    }
    assert len(skipped) == 1 and skipped[0].startswith('fire, seed 2: failed')
    models, skipped = read_models([str(work_dir)], ['model.backbone.pe_joining=default'], ['ro*'])
    assert [model.arm for model in models] == ['rope'] * 3 and not skipped
    assert {model.trained.config.model.backbone.pe_joining for model in models} == {'default'}


def test_a_study_is_its_own_work_dir(work_dir, monkeypatch):
    study = work_dir.parent / 'kinds.yml'
    study.write_text('title: T\nseeds: [1]\nbase: tiny.py\narms:\n  rope: {}\n')
    tiny.write_config(work_dir.parent, work_dir.parent / 'data')
    monkeypatch.chdir(work_dir.parent)
    Path('work_dirs').mkdir()
    work_dir.rename('work_dirs/kinds')
    assert [model.name for model in read_models(['kinds.yml'])[0]] == [
        model.name for model in read_models(['work_dirs/kinds'])[0]
    ]


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
    found = (tmp_path / 'sweep/report.json').read_text()
    (arm,) = json.loads(found)['arms'].values()
    small, large = (arm['last']['metrics'][f'mIoU at {size}']['values'] for size in (24, 32))
    assert small['1'] == small['2'] != large['1'] == large['2']
    assert 'box' not in found and 'mIoU by the shorter side' in (tmp_path / 'sweep/size_sweep.md').read_text()
    assert (tmp_path / 'sweep/size_sweep.png').stat().st_size > 5000
    (tmp_path / 'sweep/tiny (2)/size_32/metrics.json').unlink()
    again = tiny.run(*command, cwd=tmp_path, **python)
    assert 'tiny (2): size 32' in again and 'tiny (1): size' not in again and 'tiny (2): size 24' not in again
    assert (tmp_path / 'sweep/report.json').read_text() == found
