"""The shell tools choose the checkout's environment, or say in one line that none has torch."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import tiny

from mmlape.commands import fill_parser, parse_arguments

FAKE = """#!/bin/sh
[ "$1" = -c ] && {answer}
echo {name} "$@"
"""


def python(file, answer='echo 0 && exit', name='own'):
    """A stand-in for Python, which prints its name and arguments."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FAKE.format(answer=answer, name=name))
    file.chmod(0o755)


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / 'checkout' / 'tools').mkdir(parents=True)
    for tool in (tiny.ROOT / 'tools').glob('*.sh'):
        shutil.copy(tool, tmp_path / 'checkout' / 'tools')
    python(tmp_path / 'system' / 'python', 'echo "ModuleNotFoundError: no torch" >&2 && exit 1', 'system')
    python(tmp_path / 'system' / 'srun', name='srun')
    return tmp_path / 'checkout'


def call(checkout, *words, **env):
    path = f'{checkout.parent / "system"}:/usr/bin:/bin'
    command = ['bash', f'tools/{words[0]}', *words[1:]]
    return subprocess.run(command, cwd=checkout, env=dict(PATH=path, **env), capture_output=True, text=True)


def test_the_checkouts_environment_is_taken_where_none_is_active(checkout):
    python(checkout / '.venv' / 'bin' / 'python')
    shown = call(checkout, 'dist_train.sh', 'a.py', '2').stdout
    assert 'own -m torch.distributed.run' in shown and 'train.py a.py' in shown
    own = os.path.join(checkout, '.venv/bin/python')
    assert own in call(checkout, 'slurm_train.sh', 'partition', 'job', 'a.py').stdout


def test_a_python_without_torch_is_one_line(checkout):
    done = call(checkout, 'dist_train.sh', 'a.py', '2')
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr == (
        f'mmlape: error: {checkout.parent}/system/python cannot import torch (ModuleNotFoundError: no torch): '
        'activate the environment, or set PYTHON\n'
    )


C = 'configs/mask_rcnn/mask-rcnn_deit-tiny-adapter-lape_4xb2-3x_coco.py'
COPIED = (
    f'python tools/train.py {C} --work-dir out --resume --amp --auto-scale-lr --launcher none',
    f'python tools/train.py {C} --cfg-options train_dataloader.batch_size=4 optim_wrapper.optimizer.lr=0.01',
    f'bash ./tools/dist_train.sh {C} 8 --work-dir out --resume',
    f'PORT=29501 sh tools/dist_train.sh {C} 4',
    f'NNODES=2 NODE_RANK=0 PORT=29500 MASTER_ADDR=127.0.0.1 bash tools/dist_train.sh {C} 4',
    f'GPUS=16 ./tools/slurm_train.sh dev mask_r50_1x {C} /nfs/out',
    f'GPUS=4 GPUS_PER_NODE=4 SRUN_ARGS=--exclusive tools/slurm_train.sh dev seg {C} --work-dir out --amp',
    f'python tools/test.py {C} a.pth --out results.json --show-dir shown --work-dir out --tta --launcher none',
    f'python tools/test.py {C} a.pth --cfg-options test_evaluator.classwise=True',
    f'bash ./tools/dist_test.sh {C} a.pth 8 --out results.json --show-dir shown',
    f'GPUS=8 tools/slurm_test.sh dev mask {C} a.pth --cfg-options model.test_cfg.rcnn.score_thr=0.1',
)
"""As MMDetection's and MMSegmentation's documentation has them, with a config of ours."""


@pytest.mark.parametrize('command', COPIED)
def test_a_command_copied_from_the_toolboxes_is_taken(command, checkout):
    """By the shell tool, and by the parser of what it starts."""
    for name in ('python', 'srun'):
        python(checkout / 'bin' / name, name=name)
    environment = {'PATH': f'{checkout}/bin:/usr/bin:/bin', 'PYTHON': f'{checkout}/bin/python'}
    shell = command.replace('sh tools', 'bash tools').replace('babash', 'bash')
    done = subprocess.run(['bash', '-c', shell], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()[-1].split()
    tool = next(index for index, word in enumerate(words) if word.endswith(('train.py', 'test.py')))
    parser = argparse.ArgumentParser()
    fill_parser(parser, Path(words[tool]).stem)
    args = parse_arguments(parser, words[tool + 1 :])
    assert C in (getattr(args, 'config', None), *getattr(args, 'trained', []))
    work_dir = '/nfs/out' if '/nfs' in command else 'out' if 'work-dir' in command else None
    assert args.work_dir == work_dir
