"""Set-up: the lock, the stamp, and what the script does where something is missing."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mmlape.lab.environment.packages import LOCK, locked

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = pytest.importorskip('tomli')

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ('3.10', '3.11', '3.12', '3.13')


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """Run a program; the variables replace those of the environment."""
    merged = {**os.environ, **env}
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=merged)


# the lock


def lines() -> list[Requirement]:
    """The requirements of the lock."""
    text = LOCK.read_text().replace('\\\n', ' ')
    return [Requirement(line.partition('--hash')[0]) for line in text.splitlines() if line and line[0] not in '# ']


LOCKED = ('experiments', 'stack', 'dev', 'docs')
"""The extras of the lock; [stack] asks for [experiments]."""


@pytest.mark.parametrize('python', PYTHONS)
def test_each_python_gets_one_version_of_what_the_package_asks_for(python):
    here = dict(python_version=python, python_full_version=f'{python}.1', sys_platform='linux', extra='')
    versions: dict[str, str] = {}
    for line in lines():
        if line.marker is None or line.marker.evaluate(here):
            assert versions.setdefault(line.name, str(line.specifier)) == str(line.specifier)
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    extras = project['optional-dependencies']
    asked = [*project['dependencies'], *(line for name in LOCKED for line in extras[name])]
    for wanted in map(Requirement, asked):
        if wanted.name not in ('opencv-python', 'mmlape') and (wanted.marker is None or wanted.marker.evaluate(here)):
            assert versions[wanted.name].removeprefix('==') in wanted.specifier, wanted


def test_the_lock_has_hashes_and_no_addresses():
    text = LOCK.read_text()
    assert '://' not in text and 'index-url' not in text
    for block in re.split(r'\n(?=\w)', text.partition('\n')[2]):
        if '==' in block:
            assert re.search(r'--hash=sha256:[0-9a-f]{64}', block), block[:80]
    assert all(len(locked()[name]) == 1 for name in ('timm', 'numpy', 'torch'))  # whatever Python this is


# make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The real Makefile over a stand-in for the set-up: it counts its calls."""
    for name in ('Makefile', 'setup.py', 'pyproject.toml'):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / 'mmlape').mkdir()
    shutil.copy(LOCK, tmp_path / 'mmlape')
    (tmp_path / 'bootstrap').mkdir()
    (tmp_path / 'bootstrap' / 'setup.sh').write_text('echo "$1" >>calls; mkdir -p "$1"; [ ! -e broken ]\n')
    return tmp_path


def calls(project: Path) -> int:
    return len((project / 'calls').read_text().splitlines())


def test_set_up_runs_once_and_again_after_a_change_of_the_lock(project: Path):
    for _ in range(2):
        done = run('make', 'setup', cwd=project)
        assert done.returncode == 0, done.stderr
        assert calls(project) == 1
    later = (project / '.venv' / '.ready').stat().st_mtime + 10
    os.utime(project / 'mmlape' / 'requirements.txt', (later, later))
    assert run('make', 'setup', cwd=project).returncode == 0
    assert calls(project) == 2


# the script


TOOLS = ('sh', 'date', 'mkdir', 'df', 'awk', 'cut', 'sed', 'dirname', 'cp')


def script(path: Path, text: str) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs to use as PATH; its uv and pip write what they are asked for to `calls`."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name))
    version = re.search(r'uv_version=(\S+)', (ROOT / 'bootstrap' / 'setup.sh').read_text())[1]
    made = script(tmp_path / 'made', f'echo "venv $*" >>{tmp_path}/calls')
    uv = script(
        tmp_path / 'uv',
        f'echo "uv $*" >>{tmp_path}/calls\n'
        f'case "$*" in --version) echo uv {version};; *"python find"*3.12) echo {folder}/python3;; '
        f'*"python find"*) exit 1;; '
        f'venv*) mkdir -p {tmp_path}/venv/bin; cp {made} {tmp_path}/venv/bin/python; '
        f'cp {made} {tmp_path}/venv/bin/mmlape;; esac',
    )
    script(
        folder / 'python3',
        f'case "$*" in "-m venv"*) mkdir -p "$3/bin"; cp {uv} "$3/bin/uv"; cp {made} "$3/bin/python";; '
        '-V) echo Python 3.12.0;; esac',
    )
    return folder


def set_up(machine: Path, **env: str) -> subprocess.CompletedProcess:
    venv = machine.parent / 'venv'
    env = {'PATH': str(machine), 'HOME': str(machine), 'PYTHON': '', **env}
    return run(machine / 'sh', ROOT / 'bootstrap' / 'setup.sh', venv, cwd=machine, **env)


def test_the_lock_is_installed_then_the_package_then_the_ops(machine: Path):
    done = set_up(machine)
    assert done.returncode == 0, done.stderr
    assert 'ready in' in done.stdout
    asked = (machine.parent / 'calls').read_text()
    order = [
        'pip install -q uv==',
        'python find',
        'uv venv',
        '--require-hashes -r',
        '-e .',
        'venv install-ops',
        'mmdet',
    ]
    assert [asked.index(part) for part in order] == sorted(asked.index(part) for part in order)
    assert 'MMCV' not in asked and '--no-binary' not in asked
