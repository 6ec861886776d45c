"""DETR's mini config: two processes train it, it learns, is evaluated, and its file says what it is."""

import json

import pytest
import torch
from tiny import ROOT, evaluations, record, run

from mmlape.checkpoint import read_checkpoint
from mmlape.checkpoint.converting import inspect

CONFIG = ROOT / 'configs' / 'detr' / 'detr_r18-irpe-product-k-9x9_2xb2-200i_mini-coco.py'
OPTIONS = (
    'train_cfg.max_iters=12', 'train_cfg.val_interval=12', 'param_scheduler.0.end=2', 'param_scheduler.1.begin=2',
    'default_hooks.logger.interval=1', 'default_hooks.checkpoint.interval=12', 'train_dataloader.num_workers=0',
    'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False', 'model.encoder.with_cp=True', 'model.pe_joining=lape',
)  # fmt: skip


@pytest.mark.release
def test_two_processes_train_and_evaluate_the_mini_config(pristine, tmp_path):
    work_dir = tmp_path / 'run'
    words = ('2', '--work-dir', work_dir, '--seed', '1', '--cfg-options', f'data_root={pristine}/coco/', *OPTIONS)
    run(ROOT / 'tools' / 'dist_train.sh', CONFIG, *words, cwd=tmp_path)
    assert (record(work_dir)['world_size'], record(work_dir)['total_batch']) == (2, 4)
    [log] = work_dir.rglob('scalars.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    losses = [line['loss'] for line in lines if 'loss' in line]
    assert len(losses) == 12 and sum(losses[-3:]) < 0.95 * sum(losses[:3])
    assert 'coco/bbox_mAP' in evaluations(work_dir)[-1]['metrics']
    weights = read_checkpoint(work_dir / 'iter_12.pth')['state_dict']
    table = weights['encoder.layers.1.self_attn.rpe_k.lookup_table_weight']
    assert table.shape == (1, 32, 81) and torch.isfinite(table).all() and table.any()
    found = inspect(work_dir / 'iter_12.pth')
    assert (found['layout'], found['pe_joining'], found['class head']) == (
        'mmdetection DETR',
        'lape',
        '10 classes, no object',
    )
