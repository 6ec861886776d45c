"""A config under the plain runner, as the toolboxes' own tools start it, and under ours: equal losses and metrics."""

import copy
import json

import golden_losses
import pytest
import torch
from mmengine.runner import Runner

from mmlape.lab.engine.optim import build_model
from mmlape.lab.engine.schedule import shorten
from mmlape.lab.engine.trainer import train

SEED = 7
# without random numbers, which our runs draw by the position of a sample and the iteration
KEPT = ('LoadImageFromFile', 'LoadAnnotations', 'PackInputs', 'PackSegInputs', 'PackDetInputs')
RATES = ('drop_path_rate', 'drop_rate', 'dropout_ratio', 'dropout', 'attn_drop', 'proj_drop')
NAMES = {
    'deit-mini-lape_1xb32-5e_mini-digits': {},
    'linear_deit-mini-dpn_1xb8-100i_mini-ade': {'IoUMetric': 'mmseg.IoUMetric'},
    'mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco': {'CocoMetric': 'mmdet.CocoMetric'},
}
"""A recipe of each toolbox, and the toolbox's metric for ours."""


def without_random_numbers(node):
    """Change a part of a config in place."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in RATES and isinstance(value, float):
                node[key] = 0.0
            elif key == 'sampler':
                node[key] = dict(type='PseudoSampler')
            without_random_numbers(value)
    elif isinstance(node, list | tuple):
        for value in node:
            without_random_numbers(value)


def innermost(dataset):
    return innermost(dataset['dataset']) if 'dataset' in dataset else dataset


def by_plain_runner(cfg, work_dir, metrics):
    """Train as `tools/train.py` of a toolbox does; return the losses and the metrics."""
    cfg = copy.deepcopy(cfg)
    cfg.work_dir, cfg.randomness = str(work_dir), dict(seed=SEED)
    for evaluator in [cfg.val_evaluator] if isinstance(cfg.val_evaluator, dict) else cfg.val_evaluator:
        evaluator.type = metrics.get(evaluator.type.rpartition('.')[2], evaluator.type)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return losses_in(work_dir), runner.message_hub


def losses_in(work_dir):
    [log] = work_dir.rglob('vis_data/scalars.json')
    rows = [json.loads(line) for line in log.read_text(encoding='utf-8').splitlines()]
    return [row['loss'] for row in rows if 'loss' in row]


def _cases():
    """Yield the recipes; one is enough for each change, the other two toolboxes are for releases."""
    for name in NAMES:
        yield pytest.param(name, marks=[] if name.startswith('linear_') else [pytest.mark.release])


@pytest.mark.parametrize('name', _cases())
def test_the_plain_runner_trains_and_evaluates_alike(name, tmp_path):
    golden_losses.make_data(tmp_path)
    cfg, share = golden_losses.recipe(name, tmp_path)
    shorten(cfg, share)
    without_random_numbers(cfg.model)
    dataset = innermost(cfg.train_dataloader.dataset)
    dataset.pipeline = [step for step in dataset.pipeline if step['type'].rpartition('.')[2] in KEPT]
    torch.save(build_model(cfg).state_dict(), tmp_path / 'weights.pth')
    cfg.load_from = str(tmp_path / 'weights.pth')
    record = train(cfg, tmp_path / 'ours', seed=SEED, batch='allow-batch-mismatch')
    expected, hub = by_plain_runner(cfg, tmp_path / 'plain', NAMES[name])
    assert losses_in(tmp_path / 'ours')[:20] == pytest.approx(expected[:20], rel=1e-6) and len(expected) >= 20
    assert len(set(expected)) >= 20
    metrics = {key.removeprefix('val/'): log.data[0][-1] for key, log in hub.log_scalars.items() if 'val/' in key}
    shared = {key: value for key, value in record.last.metrics.items() if key in metrics}
    assert shared and shared == pytest.approx({key: metrics[key] for key in shared}, abs=0.006)
