"""README's commands, run in a fresh clone by somebody who has neither COCO nor four GPUs."""

import subprocess

import pytest
from doc_blocks import ROOT, blocks

FEW = 'train_cfg.max_iters=4 train_cfg.val_interval=4 param_scheduler.0.end=1 param_scheduler.1.begin=1'
WEIGHTS = 'model.backbone.init_cfg.checkpoint=pretrained/deit_small_lape.pth'
MINI = {  # what stands for a recipe: its mini recipe, and a few iterations of it
    'deit/deit-small-lape_4xb256-300e_in1k': (
        'deit/deit-mini-lape_1xb32-5e_mini-digits',
        'train_cfg.max_epochs=1 train_cfg.val_interval=1 param_scheduler.0.end=1 train_dataloader.batch_size=8',
    ),
    'mask_rcnn/mask-rcnn_deit-small-adapter-lape_4xb2-3x_coco': (
        'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco',
        f'{FEW} {WEIGHTS} train_dataloader.batch_size=1',
    ),
    'segmenter/segmenter_deit-small-lape_4xb2-160k_ade20k': (
        'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade',
        f'{FEW} {WEIGHTS} train_dataloader.batch_size=4',
    ),
    'upernet/upernet_deit-small-adapter-lape_4xb2-160k_ade20k': (
        'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade',
        f'{FEW} {WEIGHTS} auto_scale_lr.base_batch_size=8 train_dataloader.batch_size=2',
    ),
}


def small(script: str) -> str:
    """Return the commands with a mini recipe for each recipe; training and averaging take a few iterations."""
    lines = []
    for line in script.splitlines():
        for name, (mini, options) in MINI.items():
            if f'dist_train.sh configs/{name}.py' in line:
                line += f' --cfg-options {options}'
            line = line.replace(name, mini).replace(name.split('/')[1], mini.split('/')[1])
        if 'multi-seed' in line:
            line += f' --seeds 1 2 3 --cfg-options {FEW} model.backbone.init_cfg=None train_dataloader.batch_size=4'
        lines.append(line)
    script = '\n'.join(lines)
    # the two arms are named by a variable
    for full, mini in (
        ('epoch_300.pth', 'epoch_1.pth'),
        ('segmenter_deit-small', 'segmenter_deit-mini'),
        ('_4xb2-160k_ade20k', '_1xb16-250i_mini-ade'),
        ('CHECKPOINT', 'work_dirs/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco/iter_4.pth'),
    ):
        script = script.replace(full, mini)
    return script


@pytest.mark.release
def test_the_commands_run_in_a_fresh_clone(tmp_path):
    clone = tmp_path / 'clone'
    subprocess.run(['git', 'clone', '-q', ROOT, clone], check=True)
    make, job = (block.code for block in blocks(ROOT / 'README.md') if block.language == 'bash')
    data = 'mmlape make-mini-data data/mini --train 48 --val 16 --digits 640\n'
    script = f'set -ex\n{make}\n{small(job)}'.replace('.venv/bin/activate\n', f'.venv/bin/activate\n{data}')
    subprocess.run(['bash', '-c', script], cwd=clone, check=True)
    assert (clone / 'work_dirs/mine/report/index.html').is_file()
