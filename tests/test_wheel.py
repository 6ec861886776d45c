"""The wheel: it carries configs, tools and model index, and `mmlape::` finds them after installation elsewhere."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mmlape.environment.pins import read_pins
from mmlape.errors import ConfigError
from mmlape.mim import config_path

ROOT = Path(__file__).resolve().parents[1]
LEAVE_OUT = ('.git', '.venv', 'build', 'dist', 'data', 'work_dirs', '*.egg-info', '.mim', '__pycache__', '.*_cache')


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """Run a program; the variables replace those of the environment."""
    merged = {**os.environ, **env}
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=merged)


@pytest.fixture(scope='module')
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that nothing is written here."""
    folder = tmp_path_factory.mktemp('wheel')
    shutil.copytree(ROOT, folder / 'source', ignore=shutil.ignore_patterns(*LEAVE_OUT))
    flags = ('--no-deps', '--no-build-isolation', '--no-cache-dir', '-q')
    done = run(sys.executable, '-m', 'pip', 'wheel', *flags, '-w', folder, folder / 'source', cwd=folder)
    assert done.returncode == 0, done.stderr
    return next(folder.glob('mmlape-*.whl'))


@pytest.fixture(scope='module')
def elsewhere(wheel: Path) -> Path:
    """A folder with the installed wheel, away from the repository."""
    target = wheel.parent / 'installed'
    flags = ('--no-deps', '--no-cache-dir', '-q', '--target', target)
    done = run(sys.executable, '-m', 'pip', 'install', *flags, wheel, cwd=wheel.parent)
    assert done.returncode == 0, done.stderr
    return target


def outside(elsewhere: Path, code: str) -> subprocess.CompletedProcess:
    """Run code where only the installed wheel is mmlape."""
    where = f'import mmlape, sys; assert mmlape.__file__.startswith({str(elsewhere)!r}), mmlape.__file__\n'
    return run(sys.executable, '-c', where + code, cwd=elsewhere.parent, PYTHONPATH=str(elsewhere))


def test_wheel_carries_configs_tools_and_index(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    for source in [*ROOT.glob('configs/**/*.py'), *ROOT.glob('configs/**/*.yml'), *ROOT.glob('tools/*')]:
        if source.is_file():
            assert f'mmlape/.mim/{source.relative_to(ROOT)}' in names
    assert {'mmlape/.mim/model-index.yml', 'mmlape/requirements.txt', 'mmlape_prefix.pth'} <= names
    assert 'mmlape/experiments/report/page.html' in names
    assert not [name for name in names if name.startswith(('tests/', 'bootstrap/')) or name.endswith('.pyc')]


def test_wheel_asks_for_light_packages_only(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith('METADATA'))
        lines = archive.read(name).decode().splitlines()
    base = [line for line in lines if line.startswith('Requires-Dist') and 'extra ==' not in line]
    assert base
    assert not [line for line in base if re.search(r'onedl|mmcv|mmdet|torch|mmseg', line)]
    extras = '\n'.join(line for line in lines if 'extra ==' in line)
    for line in [*read_pins()['torch'], *read_pins()['mm']]:
        assert line in extras


def segmenter_config() -> str:
    return sorted(path.name for path in (ROOT / 'configs' / 'segmenter').glob('*.py'))[0]


def test_config_by_prefix_after_installation_elsewhere(elsewhere: Path):
    name = segmenter_config()
    code = (
        'from mmengine.config import Config\n'
        f'cfg = Config.fromfile("mmlape::segmenter/{name}")\n'
        'print(cfg.filename); print(cfg.model.type)'
    )
    done = outside(elsewhere, code)
    assert done.returncode == 0, done.stderr
    filename, model = done.stdout.split()
    assert filename == str(elsewhere / 'mmlape' / '.mim' / 'configs' / 'segmenter' / name)
    assert model.endswith('EncoderDecoder')


def test_prefix_in_a_base_keeps_the_type_names(elsewhere: Path):
    """A config of one's own, on top of ours: the same dictionary, with no scope slipped in."""
    mine = elsewhere.parent / 'mine.py'
    mine.write_text(f"_base_ = 'mmlape::segmenter/{segmenter_config()}'\nseed_of_mine = 7\n")
    code = (
        'from mmengine.config import Config\n'
        f'ours, mine = Config.fromfile("mmlape::segmenter/{segmenter_config()}"), Config.fromfile({str(mine)!r})\n'
        'assert mine.pop("seed_of_mine") == 7\n'
        'assert mine.to_dict() == ours.to_dict()\n'
    )
    done = outside(elsewhere, code)
    assert done.returncode == 0, done.stderr


def test_prefix_works_without_importing_mmlape_first(elsewhere: Path):
    """What the `.pth` file does at the start of an interpreter whose site-packages hold mmlape."""
    code = (
        f'import site; site.addsitedir({str(elsewhere)!r})\n'
        'import sys; assert "mmlape" not in sys.modules\n'
        'from mmengine.config import Config\n'
        f'print(Config.fromfile("mmlape::segmenter/{segmenter_config()}").model.type)'
    )
    done = run(sys.executable, '-c', code, cwd=elsewhere.parent, PYTHONPATH=str(elsewhere))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith('EncoderDecoder')


def test_console_command_after_installation_elsewhere(elsewhere: Path):
    command = elsewhere / 'bin' / 'mmlape'
    assert command.exists()
    done = run(sys.executable, command, '--version', cwd=elsewhere.parent, PYTHONPATH=str(elsewhere))
    assert done.stdout.startswith('mmlape '), done.stderr


def test_prefix_in_this_environment():
    name = segmenter_config()
    code = f'import mmlape\nfrom mmengine import Config\nprint(Config.fromfile("mmlape::segmenter/{name}").filename)'
    done = run(sys.executable, '-c', code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == config_path(f'mmlape::segmenter/{name}')


def test_unknown_config_offers_close_ones():
    name = segmenter_config()
    with pytest.raises(ConfigError, match=re.escape(f'mmlape::segmenter/{name}')):
        config_path('mmlape::segmenter/' + name.replace('xb', 'xx'))
