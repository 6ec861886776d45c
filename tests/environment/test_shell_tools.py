"""The shell tools choose the checkout's environment, or say in one line that none has torch."""

import os
import shutil
import subprocess

import pytest
import tiny

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
