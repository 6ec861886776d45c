"""The config and the checkpoint of a run in OpenMMLab's own inferencers, each in a process of its own."""

import sys

import pytest
import tiny
from mmengine.config import Config

from mmlape.checkpoint import read_checkpoint
from mmlape.lab.config.config_file import load_config
from mmlape.lab.training.trainer import train

FAST = {
    'train_dataloader.batch_size': 2,
    'train_dataloader.num_workers': 0,
    'val_dataloader.num_workers': 0,
    'model.backbone.init_cfg': None,
    'train_cfg.max_iters': 1,
    'train_cfg.val_interval': 1,
    'param_scheduler': [],
}
EPOCHS = {'train_cfg.max_epochs': 1, 'train_dataloader.num_workers': 0, 'val_dataloader.num_workers': 0}
# config, folder of the mini data, its images, changes, and the lines that build the inferencer and use its result
TASKS = {
    'segmentation': (
        'segmenter/segmenter_deit-mini_1xb16-250i_mini-ade', 'ade', 'images/validation/*', FAST,
        'from mmseg.apis import MMSegInferencer\n'
        'found = MMSegInferencer(model=config, weights=weights, device="cpu")(image, return_vis=False)\n'
        'assert found["predictions"].shape == (64, 64)\n',
    ),
    'detection': (
        'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco', 'coco', 'val2017/*', FAST,
        'from mmdet.apis import DetInferencer\n'
        'found = DetInferencer(model=config, weights=weights, device="cpu")(image, return_vis=False)\n'
        'assert "bboxes" in found["predictions"][0]\n',
    ),
    'classification': (
        'deit/deit-mini-lape_1xb32-5e_mini-digits', 'digits', 'val/*/*', EPOCHS,
        'from mmpretrain.apis import ImageClassificationInferencer\n'
        'found = ImageClassificationInferencer(model=config, pretrained=weights, device="cpu")(image)\n'
        'assert len(found[0]["pred_scores"]) == 10\n',
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ('task', 'python'),
    [
        pytest.param('segmentation', {}, id='segmentation'),
        *(pytest.param(task, tiny.REAL, marks=pytest.mark.release, id=f'{task}, interpreter') for task in TASKS),
    ],
)
def test_the_config_and_the_checkpoint_of_a_run_work_in_the_inferencer_of_its_task(task, python, pristine, tmp_path):
    name, folder, images, changes, lines = TASKS[task]
    cfg = load_config(f'mmlape::{name}', {'data_root': str(pristine / folder), **changes})
    train(cfg, tmp_path / 'run', seed=0, batch='allow-batch-mismatch')
    weights = next((tmp_path / 'run').glob('[ei]*_1.pth'))
    configs = [next((tmp_path / 'run').glob('*_mini-*.py')), tmp_path / 'stored.py']
    configs[1].write_text(read_checkpoint(weights)['meta']['cfg'])
    for config in configs:
        pipelines = [Config.fromfile(config)[f'{split}_dataloader'].dataset.pipeline for split in ('train', 'test')]
        assert [steps[0].type for steps in pipelines] == ['LoadImageFromFile'] * 2
    image = next((pristine / folder).glob(images))
    given = f'image, weights, configs = {str(image)!r}, {str(weights)!r}, {[str(config) for config in configs]}\n'
    body = ''.join(f'    {line}\n' for line in lines.splitlines())
    # a checkpoint alone is enough where the inferencer reads the config in it
    alone = '' if task == 'classification' else '[None]'
    code = f'import mmlape\n{given}for config in configs{f" + {alone}" if alone else ""}:\n{body}'
    tiny.run(sys.executable, '-c', code, cwd=tmp_path, **python)
