"""The doctor and `require_stack`, as subprocesses, in the working environment and in broken ones."""

import os
import subprocess
import sys
from pathlib import Path

import forking_python
import pytest
import tiny

from mmlape.lab.environment.lock import everything_line, install_line
from mmlape.lab.environment.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]

# Makes an import fail as if the module were not there.
HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r} or name.startswith({name!r} + '.'):
            raise ModuleNotFoundError('No module named ' + repr(name), name=name)
sys.meta_path.insert(0, Hide())
"""


def python(*args: str, path: Path | None = None, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """Run Python with a folder in front of the module path; `flags=('-S',)` leaves out all installed packages."""
    places = [str(place) for place in (path, ROOT) if place]
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(places)}
    return subprocess.run([sys.executable, *flags, *args], capture_output=True, text=True, env=env)


def forked_doctor(hide: str, *modules: str, cwd: Path, status: int = 1) -> str:
    """What the doctor prints, and its status, in a fork that forgets modules and whose imports `hide` changes."""
    forget = f'for name in [name for name in sys.modules if name.startswith({modules})]:\n    del sys.modules[name]\n'
    doctor = 'from mmlape.cli import main\nsys.exit(main(["doctor"]))\n'
    return tiny.run(sys.executable, '-c', hide + forget + doctor, cwd=cwd, status=status)


def fake_distribution(folder: Path, module: str, distribution: str, version: str) -> None:
    """Write an installed package that has metadata and an empty module."""
    (folder / module).mkdir()
    (folder / module / '__init__.py').write_text('')
    info = folder / f'{distribution.replace("-", "_")}-{version}.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n')


def test_healthy_environment(tmp_path: Path):
    printed = tiny.run(sys.executable, '-m', 'mmlape', 'doctor', cwd=tmp_path)
    assert 'FAIL' not in printed
    for name in (
        'Python',
        'torch',
        'CUDA',
        'mmcv ops, CPU',
        'mmcv ops, CUDA',
        'COCO AP',
        'deformops',
        '/dev/shm',
        'disk',
    ):
        assert name in printed
    assert 'NMS and RoIAlign run (' in printed
    assert 'pycocotools; faster-coco-eval 1.' in printed and "by CocoMetric(backend='faster')" in printed
    assert 'training can run here' in printed


def test_missing_ops(tmp_path: Path):
    printed = forked_doctor(HIDE.format(name='mmcv._ext'), 'mmcv._ext', 'mmcv.ops', cwd=tmp_path)
    assert "mmcv has no ops ('mmcv._ext' is missing)" in printed
    assert f'    {forking_python.executable()} -m mmlape install-ops\n' in printed
    assert 'training cannot run here' in printed


def test_broken_extension(tmp_path: Path):
    """An extension that was built for another torch does not load, in a fork that has imported the packages."""
    symbol = (
        HIDE.format(name='mmcv._ext').replace('ModuleNotFoundError', 'ImportError').replace('No module named', '_ZN')
    )
    printed = forked_doctor(symbol, 'mmcv._ext', 'mmcv.ops', cwd=tmp_path)
    assert "mmcv's ops do not run on CPU: _ZN" in printed
    assert f'{install_line("mmcv").removeprefix(sys.executable)}\n' in printed


def test_nothing_installed_at_all():
    """Not even rich: the table is plain, torch and the core's libraries are missing, and OpenMMLab is offered."""
    done = python('-m', 'mmlape', 'doctor', flags=('-S',))
    assert done.returncode == 1, done.stderr
    assert 'torch is not installed' in done.stdout and install_line('torch') in done.stdout
    assert 'not installed: numpy, packaging, safetensors' in done.stdout
    assert 'models and checkpoints cannot be used here' in done.stdout
    assert f'for training, in an environment of its own: {everything_line()}' in done.stdout


def test_beside_timm_alone_nothing_is_wrong(tmp_path: Path):
    """Whoever installed mmlape for its models is told of no package of OpenMMLab, nor of other versions of his own."""
    hidden = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'addict', 'statsmodels')
    printed = forked_doctor(''.join(HIDE.format(name=name) for name in hidden), *hidden, cwd=tmp_path, status=0)
    assert 'FAIL' not in printed and 'problem' not in printed
    assert not any(name in printed for name in hidden)
    assert '-    OpenMMLab       not installed: needed for training only\n' in printed
    assert 'models and checkpoints can be used here\n' in printed


@pytest.mark.parametrize(('module', 'version', 'oldest'), [('mmcv', '1.7.0', '2.1.0'), ('torch', '2.5.1', '2.6.0')])
def test_old_version_is_refused(tmp_path: Path, module: str, version: str, oldest: str):
    fake_distribution(tmp_path, module, module, version)
    done = python('-m', 'mmlape', 'doctor', path=tmp_path, flags=('-S',))
    assert done.returncode == 1
    assert f'{module} {version} is too old: mmlape needs {oldest} or newer' in done.stdout


@pytest.mark.parametrize('package', ['mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain'])
@pytest.mark.parametrize('which', [0, 1], ids=['fork', 'original'])
def test_fork_and_original_are_both_recognised(tmp_path: Path, package: str, which: int):
    distribution = PACKAGES[package].distributions[which]
    fake_distribution(tmp_path, package, distribution, '9.8.7')
    done = python('-m', 'mmlape', 'doctor', path=tmp_path, flags=('-S',))
    assert f'9.8.7 from {distribution}' in done.stdout
    assert f'{package} is not installed' not in done.stdout


def test_a_stack_of_the_original_packages_is_offered_no_fork(tmp_path: Path):
    for module, distribution, version in (('mmengine', 'mmengine', '0.10.7'), ('mmcv', 'mmcv-lite', '2.0.0')):
        fake_distribution(tmp_path, module, distribution, version)
    done = python('-m', 'mmlape', 'doctor', path=tmp_path, flags=('-S',))
    assert done.returncode == 1
    assert '2.0.0 from mmcv-lite' in done.stdout and 'mmcv-lite 2.0.0 is too old' in done.stdout
    assert '--no-deps mmcv-lite==2.1.0' in done.stdout and '--no-deps mmsegmentation' in done.stdout
    assert 'onedl' not in done.stdout and 'everything at once' not in done.stdout


def test_fork_and_original_at_once_are_a_problem(tmp_path: Path):
    fake_distribution(tmp_path, 'mmcv', 'mmcv', '2.2.0')
    paths = os.pathsep.join(map(str, (tmp_path, ROOT)))
    printed = tiny.run(sys.executable, '-m', 'mmlape', 'doctor', cwd=tmp_path, status=1, PYTHONPATH=paths)
    assert 'onedl-mmcv and mmcv are both installed, and write into one folder' in printed
    assert 'pip uninstall -y onedl-mmcv mmcv && ' in printed
