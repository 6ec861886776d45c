"""The mini configs of Mask2Former and Cascade Mask R-CNN: trained and evaluated."""

import json

import pytest
import torch
from config_helpers import ROOT
from tiny import evaluations, run

from mmlape.checkpoint import read_checkpoint

STEPS = 5
OPTIONS = (
    f'train_cfg.max_iters={STEPS}', f'train_cfg.val_interval={STEPS}', 'param_scheduler.0.end=1',
    'param_scheduler.1.begin=1', 'default_hooks.logger.interval=1', f'default_hooks.checkpoint.interval={STEPS}',
    'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False', 'train_dataloader.batch_size=1', 'auto_scale_lr.base_batch_size=1',
    'model.backbone.init_cfg=None', 'optim_wrapper.optimizer.lr=0.003',
)  # fmt: skip
CONFIGS = {
    'segmentation/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-ade': (
        'mIoU', 'decode_head.pixel_decoder.encoder.layers.1.self_attn.value_proj.weight'
    ),
    'detection/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-coco': (
        'coco/segm_mAP', 'panoptic_head.pixel_decoder.encoder.layers.1.self_attn.value_proj.weight'
    ),
    'detection/cascade-mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco': (
        'coco/segm_mAP', 'roi_head.bbox_head.2.shared_convs.0.conv.weight'
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', CONFIGS, ids=['mask2former ade', 'mask2former coco', 'cascade'])
def test_a_mini_config_trains_and_evaluates(name, pristine, tmp_path):
    config, work_dir, (metric, weight) = ROOT / 'configs' / f'{name}.py', tmp_path / 'run', CONFIGS[name]
    data = pristine / ('ade' if name.startswith('seg') else 'coco')
    words = ('--work-dir', work_dir, '--seed', '1', '--cfg-options', f'data_root={data}/', *OPTIONS)
    run(ROOT / 'tools' / 'train.py', config, *words, cwd=tmp_path)
    [log] = work_dir.rglob('scalars.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    losses = [line['loss'] for line in lines if 'loss' in line]
    assert len(losses) == STEPS and all(0 < loss < 200 for loss in losses)
    assert 0 <= evaluations(work_dir)[-1]['metrics'][metric] <= 100
    assert torch.isfinite(read_checkpoint(work_dir / f'iter_{STEPS}.pth')['state_dict'][weight]).all()
