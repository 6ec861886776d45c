"""Set-up: the lock and the stamp; a release runs the script itself, in a fresh clone."""

import os
import re
import shutil
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_wheel import run

from mmlape.lab.environment import LOCK, locked

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = pytest.importorskip('tomli')

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ('3.10', '3.11', '3.12', '3.13')


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
