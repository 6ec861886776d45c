"""What explains a failed import, as subprocesses, in the working environment and in broken ones."""

import os
import subprocess
import sys
from pathlib import Path

import forking_python
import tiny
from each import each

from mmlape.lab.environment import install_line

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


def doctor(path: Path | None = None) -> subprocess.CompletedProcess:
    """Run the doctor where no package is installed, but for those in a folder."""
    return python('-m', 'mmlape', 'doctor', path=path, flags=('-S',))


def forked_doctor(hide: str, *modules: str, cwd: Path, status: int = 1) -> str:
    """What the doctor prints, and its status, in a fork that forgets modules and whose imports `hide` changes."""
    forget = f'for name in [name for name in sys.modules if name.startswith({modules})]:\n    del sys.modules[name]\n'
    call = 'from mmlape.cli import main\nsys.exit(main(["doctor"]))\n'
    return tiny.run(sys.executable, '-c', hide + forget + call, cwd=cwd, status=status)


def fake_distribution(folder: Path, module: str, distribution: str, version: str) -> None:
    """Write an installed package that has metadata and an empty module."""
    (folder / module).mkdir(parents=True)
    (folder / module / '__init__.py').write_text('')
    info = folder / f'{distribution.replace("-", "_")}-{version}.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n')


def test_a_working_environment_has_no_problem(tmp_path: Path):
    printed = tiny.run(sys.executable, '-m', 'mmlape', 'doctor', cwd=tmp_path)
    assert printed.endswith('the packages of this installation can be imported\n')


def test_what_is_missing_is_named_with_the_line_that_installs_it(tmp_path: Path):
    """In a fork that has imported the packages; an extension that was built for another torch does not load."""
    symbol = HIDE.format(name='mmcv._ext').replace('ModuleNotFoundError', 'ImportError').replace('No module', '_ZN')
    own = forking_python.executable()
    for hide, modules, problem, line in each((
        (HIDE.format(name='mmcv._ext'), ('mmcv._ext', 'mmcv.ops'), 'mmcv has no ops', f'{own} -m mmlape install-ops'),
        (symbol, ('mmcv._ext', 'mmcv.ops'), "mmcv's ops do not run: ImportError: _ZN", install_line('mmcv')),
        (HIDE.format(name='mmdet'), ('mmdet',), 'mmdet is not installed', install_line('mmdet')),
    )):  # fmt: skip
        printed = forked_doctor(hide, *modules, cwd=tmp_path)
        assert problem in printed and 'Traceback' not in printed
        assert f'{line.removeprefix(sys.executable)}\n' in printed


def test_versions_that_are_too_old_are_refused(tmp_path: Path):
    for module, version, oldest in each((('mmcv', '1.7.0', '2.1.0'), ('torch', '2.5.1', '2.6.0'))):
        fake_distribution(tmp_path / module, module, module, version)
        words = f'{module} {version} is too old: mmlape needs {oldest} or newer'
        assert words in doctor(tmp_path / module).stdout


def test_a_command_without_torch_gets_the_line():
    """No traceback about an import, but the line that installs what is missing."""
    config = 'mmlape::segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py'
    done = python('-m', 'mmlape', 'print-params', config, flags=('-S',))
    assert done.returncode == 1
    assert done.stderr.startswith('mmlape: error: the stack cannot be used')
    assert install_line('torch') in done.stderr and 'Traceback' not in done.stderr
