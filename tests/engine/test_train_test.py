"""Training and testing with the real tools: a run, a kill, a NaN, bad input, what is saved and what it says."""

import gc
import json
import multiprocessing
import sys

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from mmlape.cli import main
from mmlape.errors import CheckpointError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference import evaluator
from mmlape.lab.runs.resume import open_resumable
from mmlape.lab.training.trainer import train

OPTIONS = ('train_cfg.max_iters=12', 'train_cfg.val_interval=4', 'default_hooks.checkpoint.interval=4')


@pytest.fixture(scope='module')
def whole(config):
    """A run that nothing happens to, and what it printed."""
    work_dir = config.parent / 'whole'
    return work_dir, tiny.train(config, work_dir, '--seed', 3, '--cfg-options', *OPTIONS)


def command(capsys, *words):
    """Runs a command in this process; its status, and what it printed from the error on."""
    status = main([str(word) for word in words])
    printed = capsys.readouterr().err.strip()
    return status, printed[max(printed.find('mmlape: error'), 0) :]


def evaluations(work_dir):
    return {entry['step']: entry['metrics'] for entry in tiny.evaluations(work_dir)}


def test_a_run_logs_its_batch_and_keeps_a_record(whole):
    work_dir, printed = whole
    process = 'GPU' if torch.cuda.is_available() else 'CPU process'
    assert f'1 {process} x 2 images x 1 accumulated = 2 images a step' in printed
    assert '(batch policy: recipe)' in printed
    assert 'eta: ' in printed and 'optimiser group: lr 0.001, weight decay 0.05' in printed
    run = tiny.record(work_dir)
    assert (run['state'], run['reason'], run['iter'], run['total_batch']) == ('finished', None, 12, 2)
    assert list(evaluations(work_dir)) == [4, 8, 12] and run['best']['key'] == 'mIoU'
    assert sorted(path.name for path in work_dir.glob('iter_*')) == ['iter_12.pth', 'iter_8.pth']
    assert (work_dir / 'curves.png').stat().st_size > 10_000


@pytest.mark.parametrize('persistent', [True, False])
def test_workers_end_with_the_run_or_the_test_that_they_read_for(tmp_path, config, persistent):
    """Python's search for cycles would end them five seconds too late."""
    workers = dict(num_workers=1, persistent_workers=persistent)
    cfg = load_config(config, ['train_cfg.max_iters=2', 'train_cfg.val_interval=2'])
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(workers)
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    try:
        train(cfg, tmp_path / 'run', seed=3)
        assert multiprocessing.active_children() == []
        evaluator.test(cfg, tmp_path / 'run' / 'iter_2.pth', tmp_path / 'test')
        assert multiprocessing.active_children() == []
    finally:
        gc.set_threshold(*thresholds)


def test_a_finished_run_is_left_alone(config, whole, capsys):
    before = (whole[0] / 'run.json').read_bytes()
    status, printed = command(capsys, 'train', config, '--work-dir', whole[0], '--cfg-options', *OPTIONS)
    assert status == 1 and 'already used' in printed and '--resume' in printed
    assert command(capsys, 'train', config, '--work-dir', whole[0], '--resume', '--cfg-options', *OPTIONS)[0] == 0
    assert (whole[0] / 'run.json').read_bytes() == before


def test_a_nan_stops_the_run_and_nothing_is_lost(config, whole, capsys, monkeypatch):
    work_dir = config.parent / 'nan'
    words = ('train', config, '--work-dir', work_dir, '--cfg-options', *OPTIONS)
    monkeypatch.setenv('TROUBLE', 'nan:10:0')
    status, printed = command(capsys, *words, '--seed', 3)
    for part in ('iteration 10', 'loss = nan', 'decode.loss_ce = nan', f'good checkpoint is {work_dir}/iter_8.pth'):
        assert status == 1 and part in printed
    run = tiny.record(work_dir)
    assert run['state'] == 'failed' and 'iteration 10' in run['reason']
    assert sorted(path.name for path in work_dir.glob('iter_*')) == ['iter_4.pth', 'iter_8.pth']
    # the newest checkpoint is half written: the one before it serves
    last = work_dir / 'iter_8.pth'
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    monkeypatch.delenv('TROUBLE')
    assert command(capsys, *words, '--resume')[0] == 0
    assert tiny.difference(work_dir / 'iter_12.pth', whole[0] / 'iter_12.pth') == 0
    assert evaluations(work_dir) == evaluations(whole[0])


def test_another_config_or_weights_alone_cannot_be_resumed(config, whole, capsys, tmp_path):
    other = tiny.write_config(config.parent, config.parent / 'data', name='other')
    last = whole[0] / 'iter_12.pth'
    words = ('train', other, '--work-dir', tmp_path, '--resume', last, '--cfg-options', *OPTIONS)
    status, printed = command(capsys, *words)
    assert status == 1 and f'config file: {config} -> {other}; ' in printed
    assert 'config: custom_hooks.0.type "Trouble" -> nothing' in printed
    assert not list(tmp_path.iterdir()), 'nothing is written'
    best = next(whole[0].glob('best_*.pth'))
    with pytest.raises(CheckpointError, match='no optimizer: give a checkpoint named iter_N'):
        open_resumable(best)
    assert {'message_hub', 'meta', 'optimizer'} <= set(open_resumable(last).content)


# testing


@pytest.fixture(scope='module', params=tiny.PYTHONS)
def tested(config, whole, request):
    """What ``tools/test.py`` printed and wrote for the run, in the run's own work dir."""
    tool = tiny.ROOT / 'tools' / 'test.py'
    best = whole[0] / 'iter_12.pth'
    printed = tiny.run(tool, config, best, '--work-dir', whole[0], '--save-pred', cwd=config.parent, **request.param)
    return printed, json.loads((whole[0] / 'metrics.json').read_text()), whole[0] / 'predictions'


def test_metrics_are_those_of_the_run_with_every_class(tested, whole):
    printed, metrics, _ = tested
    assert metrics['task'] == 'segmentation' and metrics['images'] == 5
    assert metrics['metrics'] == pytest.approx(evaluations(whole[0])[12], rel=1e-6)
    classes = metrics['per_class']['IoU']
    assert list(classes) == list(tiny.CLASSES)
    assert np.mean(list(classes.values())) == pytest.approx(metrics['metrics']['mIoU'])
    assert all(name in printed for name in (*tiny.CLASSES, 'mIoU', 'loaded 42 of 42'))
    assert 'max_iters=12' in (whole[0] / 'tiny.py').read_text(), 'a test leaves the training configuration alone'


def test_saved_maps_are_annotations(tested, config):
    """Pixel accuracy counted from the PNGs and the annotations is the one in metrics.json."""
    _, metrics, folder = tested
    right = total = 0
    annotations = sorted((config.parent / 'data' / 'annotations' / 'validation').iterdir())
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in annotations]
    for path in annotations:
        with Image.open(folder / path.name) as saved:
            assert saved.mode == 'P' and saved.getpalette()[:3] == [0, 0, 0]
            predicted = np.asarray(saved)
        truth = np.asarray(Image.open(path))
        right += ((predicted == truth) & (truth > 0)).sum()
        total += (truth > 0).sum()
    assert 100 * right / total == pytest.approx(metrics['metrics']['aAcc'])


def test_training_from_weights_takes_all_of_them_or_fails(config, whole, tmp_path):
    options = ['train_cfg.max_iters=1', 'val_cfg=None', 'val_dataloader=None', 'val_evaluator=None']
    options += ['default_hooks.checkpoint.save_best=None', 'model.decode_head.channels=8']
    cfg = load_config(config, [*options, f'load_from={whole[0]}/iter_12.pth'])
    with pytest.raises(CheckpointError, match='does not fit'):
        train(cfg, tmp_path / 'run', seed=1)
    assert tiny.record(tmp_path / 'run')['state'] == 'failed'
    cfg.load_strict, cfg.optim_wrapper.optimizer.lr = False, 0.0
    assert train(cfg, tmp_path / 'run', seed=1).state == 'finished', 'nothing was there to be lost'
    cfg = load_config(config, [*options[:-1], f'load_from={whole[0]}/nothing.pth'])
    with pytest.raises(CheckpointError, match=r'nothing\.pth: there is no such file'):
        train(cfg, tmp_path / 'other')
    assert not (tmp_path / 'other' / 'run.json').exists(), 'told before anything is written'


# detection and classification


def test_ground_truth_saved_as_predictions_has_ap_1(pristine, tmp_path):
    """The JSON is COCO's: pycocotools reads it and finds nothing to complain about."""
    from mmdet.datasets import CocoDataset
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    from mmlape.lab.evaluation.saved import write_rows
    from mmlape.lab.training.hooks.evaluation import _instances

    file = str(pristine / 'coco' / 'annotations' / 'instances_val2017.json')
    truth = COCO(file)
    classes = tuple(category['name'] for category in truth.loadCats(truth.getCatIds()))
    dataset = CocoDataset(ann_file=file, data_prefix=dict(img=''), metainfo=dict(classes=classes), pipeline=[])
    rows = []
    for image in truth.getImgIds():
        found = truth.loadAnns(truth.getAnnIds(image))
        boxes = torch.tensor([annotation['bbox'] for annotation in found])
        boxes[:, 2:] += boxes[:, :2]
        masks = torch.stack([torch.from_numpy(truth.annToMask(annotation)).bool() for annotation in found])
        labels = torch.tensor([dataset.cat_ids.index(annotation['category_id']) for annotation in found])
        sample = DetDataSample(metainfo=dict(img_id=image))
        sample.pred_instances = InstanceData(bboxes=boxes, masks=masks, labels=labels, scores=torch.ones(len(found)))
        rows += _instances(sample, dataset)
    write_rows(tmp_path / 'p.json', rows)
    for kind in ('bbox', 'segm'):
        evaluation = COCOeval(truth, truth.loadRes(str(tmp_path / 'p.json')), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        assert evaluation.stats[0] == pytest.approx(1)


TWO_STEPS = ('train_cfg.max_iters=2', 'train_cfg.val_interval=2')
RECORDER = """
from types import SimpleNamespace
calls = []
def recorder(name): return lambda *args, **more: calls.append((name, args, more))
config = SimpleNamespace(update=recorder('config'))
def __getattr__(name):
    if name.startswith('__'): raise AttributeError(name)
    return recorder(name)
"""


@pytest.mark.parametrize('store', ['http://someone:secret@store.example', ''])
def test_back_ends_log_what_the_own_log_has_and_no_secrets(config, tmp_path, monkeypatch, store):
    """Of modules that record each call."""
    (tmp_path / 'packages').mkdir()
    for name in ('wandb', 'mlflow'):
        (tmp_path / 'packages' / f'{name}.py').write_text(RECORDER)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path / 'packages')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('MLFLOW_TRACKING_URI', store)
    types = ('LocalVisBackend', 'mmlape.WandbBackend', 'mmlape.MlflowBackend')
    options = (f'visualizer.vis_backends={[dict(type=name) for name in types]}', 'visualizer.type=Visualizer')
    work_dir = tmp_path / 'run'
    assert main(['train', str(config), '--work-dir', str(work_dir), '--cfg-options', *TWO_STEPS, *options]) == 0
    (own,) = work_dir.glob('*/vis_data/scalars.json')
    rows = [json.loads(line) for line in own.read_text().splitlines()]
    wandb, mlflow = (sys.modules.pop(name).calls for name in ('wandb', 'mlflow'))
    assert not [name for name, *_ in wandb if name in ('run', 'save', 'Artifact', 'log_artifact')], 'no code'
    tracked = {args for name, args, _ in mlflow if name == 'set_tracking_uri'}
    assert tracked == {(store or f'sqlite:///{tmp_path}/mlflow.db',)}
    assert not any('secret' in file.read_text(errors='replace') for file in work_dir.rglob('*.*') if file.is_file())
    for calls, log in ((wandb, 'log'), (mlflow, 'log_metrics')):
        logged = [args[0] for name, args, _ in calls if name == log]
        for key in ('loss', 'mIoU'):
            assert [row[key] for row in logged if key in row] == [row[key] for row in rows if key in row] != []
