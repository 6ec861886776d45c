"""Set-up: pins, choice of the interpreter, the stamp, progress and advice."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mmlape.environment.pins import pinned_version, read_pins

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """Run a program; the variables replace those of the environment."""
    merged = {**os.environ, **env}
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=merged)


def script(path: Path, text: str) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# pins


def test_every_pin_is_exact():
    pins = read_pins()
    assert {'build', 'torch', 'mmcv', 'mm', 'cv2', 'runtime', 'dev'} <= set(pins)
    for lines in pins.values():
        for line in lines:
            assert re.fullmatch(r'[a-z][a-z0-9-]*==[\d.]+(; python_version .*)?', line), line


def test_each_python_gets_one_version_of_a_package():
    from packaging.requirements import Requirement

    for minor in (10, 11, 12, 13):
        seen: dict[str, str] = {}
        for line in (line for lines in read_pins().values() for line in lines):
            requirement = Requirement(line)
            if requirement.marker and not requirement.marker.evaluate({'python_version': f'3.{minor}'}):
                continue
            assert seen.setdefault(requirement.name, line) == line
        assert {'numpy', 'scipy', 'matplotlib', 'scikit-learn', 'pillow'} <= set(seen)


def test_a_pin_before_the_first_section_is_an_error(tmp_path: Path):
    (tmp_path / 'pins.txt').write_text('numpy==1.0\n# [late] too late\n')
    with pytest.raises(ValueError, match="'numpy==1.0' stands before the first section"):
        read_pins(tmp_path / 'pins.txt')


def test_pinned_version():
    assert f'torch=={pinned_version("torch")}' in read_pins()['torch']
    with pytest.raises(KeyError, match='no-such-package'):
        pinned_version('no-such-package')


# the interpreter


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs to use as PATH, with the few tools that the script calls."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    (folder / 'sh').symlink_to(shutil.which('sh'))
    return folder


def choose(machine: Path, python: str = '') -> subprocess.CompletedProcess:
    chooser = ROOT / 'bootstrap' / 'choose_python.sh'
    return run(machine / 'sh', chooser, 'no-venv', cwd=machine, PATH=str(machine), HOME=str(machine), PYTHON=python)


def test_first_interpreter_that_runs(machine: Path):
    """A shim that exists and fails is passed over, and so is a Python that is too old."""
    script(machine / 'python3.12', '#!/bin/sh\necho "pyenv: command not found" >&2; exit 127\n')
    script(machine / 'python3', '#!/bin/sh\nexit 1\n')
    script(machine / 'python3.11', '#!/bin/sh\nexit 0\n')
    done = choose(machine)
    assert (done.returncode, done.stdout) == (0, 'python3.11\n')


def test_python_312_comes_first_even_from_pyenv(machine: Path):
    script(machine / 'python3', '#!/bin/sh\nexit 0\n')
    mine = script(machine / '.pyenv' / 'versions' / '3.12.9' / 'bin' / 'python', '#!/bin/sh\nexit 0\n')
    assert choose(machine).stdout == f'{mine}\n'


def test_no_interpreter_says_what_to_install(machine: Path):
    script(machine / 'python3', '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\nexit 1\n')
    done = choose(machine)
    assert done.returncode == 1
    assert 'no Python >= 3.10 was found' in done.stderr
    assert 'python3 is Python 3.9.2' in done.stderr
    assert 'apt-get install -y python3 python3-venv python3-dev' in done.stderr


def test_a_named_interpreter_is_taken_or_refused(machine: Path):
    assert choose(machine, sys.executable).stdout == f'{sys.executable}\n'
    old = script(machine / 'old', '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.1\nexit 1\n')
    done = choose(machine, str(old))
    assert done.returncode == 1
    assert 'older than Python 3.10' in done.stderr


# make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The real Makefile over a stand-in for the installation, which takes minutes: it counts its calls."""
    for name in ('Makefile', 'setup.py'):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / 'mmlape').mkdir()
    shutil.copy(ROOT / 'mmlape' / 'requirements.txt', tmp_path / 'mmlape')
    (tmp_path / 'bootstrap').mkdir()
    shutil.copy(ROOT / 'bootstrap' / 'choose_python.sh', tmp_path / 'bootstrap')
    (tmp_path / 'bootstrap' / '__main__.py').write_text(
        'import pathlib, sys\n'
        'calls = pathlib.Path("calls")\n'
        'calls.write_text((calls.read_text() if calls.exists() else "") + sys.argv[1] + "\\n")\n'
        'pathlib.Path(sys.argv[1], "bin").mkdir(parents=True, exist_ok=True)\n'
        'sys.exit(pathlib.Path("broken").exists())\n'
    )
    return tmp_path


def calls(project: Path) -> int:
    return len((project / 'calls').read_text().splitlines())


def test_set_up_runs_once_and_again_after_a_change_of_the_pins(project: Path):
    for _ in range(2):
        done = run('make', 'setup', f'PYTHON={sys.executable}', cwd=project)
        assert done.returncode == 0, done.stderr
        assert calls(project) == 1
    later = (project / '.venv' / '.ready').stat().st_mtime + 10
    os.utime(project / 'mmlape' / 'requirements.txt', (later, later))
    assert run('make', 'setup', f'PYTHON={sys.executable}', cwd=project).returncode == 0
    assert calls(project) == 2


def test_a_failed_set_up_leaves_no_stamp(project: Path):
    (project / 'broken').touch()
    assert run('make', 'setup', f'PYTHON={sys.executable}', cwd=project).returncode != 0
    assert not (project / '.venv' / '.ready').exists()
    (project / 'broken').unlink()
    assert run('make', 'setup', f'PYTHON={sys.executable}', cwd=project).returncode == 0
    assert calls(project) == 2


@pytest.mark.parametrize('target', ['demo', 'test', 'lint', 'doctor'])
def test_every_target_sets_up_what_it_needs(project: Path, target: str):
    plan = run('make', '-n', target, cwd=project).stdout
    assert 'bootstrap .venv' in plan
    assert plan.index('bootstrap .venv') < plan.index('.venv/bin/')


def test_make_test_runs_lint_and_pytest(project: Path):
    plan = run('make', '-n', 'test', cwd=project).stdout
    assert plan.index('ruff check') < plan.index('ruff format --check') < plan.index('-m pytest')


# the installation


def test_unreachable_index_stops_with_the_log_and_advice(tmp_path: Path):
    """The real installer, against an index that refuses the connection."""
    nowhere = {
        'PIP_INDEX_URL': 'http://127.0.0.1:9/simple',
        'PIP_EXTRA_INDEX_URL': '',
        'PIP_FIND_LINKS': '',
        'PIP_CONFIG_FILE': os.devnull,
        'PIP_RETRIES': '1',
        'PIP_NO_CACHE_DIR': '1',
    }
    done = run(sys.executable, ROOT / 'bootstrap', tmp_path / 'venv', **nowhere)
    assert done.returncode == 1
    assert 'about 10 minutes' in done.stdout  # said beforehand
    assert 'FAILED: build-tools' in done.stderr
    assert 'build-tools.log' in done.stderr
    assert 'what to do: The package index could not be reached' in done.stderr
    assert 'Traceback' not in done.stderr


def test_missing_compiler_stops_before_anything_is_downloaded(tmp_path: Path):
    empty = tmp_path / 'bin'
    empty.mkdir()
    done = run(sys.executable, ROOT / 'bootstrap', tmp_path / 'venv', PATH=str(empty), CXX='', MMLAPE_NO_APT='1')
    assert done.returncode == 1
    assert 'the C++ compiler (g++)' in done.stdout
    assert 'apt-get install -y --no-install-recommends g++' in done.stderr
    assert not (tmp_path / 'venv').exists()


def test_progress_counts_compiled_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / 'bootstrap')
    from live import Progress

    now = 0.0
    progress = Progress('mmcv', lambda: now)
    progress.feed('Collecting onedl-mmcv==2.3.6')
    assert progress.text() == 'mmcv: 0:00 Collecting onedl-mmcv==2.3.6'
    now = 20.0
    progress.feed('  [1/80] c++ -MMD -MF nms.o -c nms.cpp')
    assert progress.text() == 'mmcv: compiled 1 of 80 files (1 %), 0:20 gone'
    now = 60.0
    progress.feed('  [21/80] c++ -c roi_align.cpp')  # 20 files in 40 s, 59 to go
    assert progress.text() == 'mmcv: compiled 21 of 80 files (26 %), 1:00 gone, about 1:58 left'
    progress.feed('  [80/80] c++ -c last.cpp')
    assert progress.text() == 'mmcv: compiled 80 of 80 files (100 %), 1:00 gone, linking'


def test_long_command_keeps_its_output_and_fails_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.syspath_prepend(ROOT / 'bootstrap')
    import live

    monkeypatch.setattr(live, 'PERIOD', 0.05)
    code = 'import time\nfor k in range(5):\n    print(f"[{k + 1}/5] c++", flush=True)\n    time.sleep(0.1)'
    live.run('mmcv', [sys.executable, '-c', code], tmp_path / 'logs' / 'mmcv.log')
    assert (tmp_path / 'logs' / 'mmcv.log').read_text().count('c++') == 5
    shown = capsys.readouterr().out
    assert 'of 5 files' in shown
    assert 'mmcv: done in 0:0' in shown
    with pytest.raises(live.StepFailed) as failure:
        live.run('mmcv', [sys.executable, '-c', 'raise SystemExit("error: no luck")'], tmp_path / 'mmcv.log')
    assert failure.value.log.read_text() == 'error: no luck\n'


@pytest.mark.parametrize(
    'line, words',
    [
        ('OSError: [Errno 28] No space left on device', 'The disk is full'),
        ("NewConnectionError('...: Failed to establish a new connection')", 'could not be reached'),
        ('pybind.h:3:10: fatal error: Python.h: No such file or directory', 'apt-get install -y python3-dev'),
        ('/bin/sh: 1: g++: not found', 'apt-get install -y g++'),
        ("error: command 'g++' failed: No such file or directory", 'apt-get install -y g++'),
        ('c++: fatal error: Killed signal terminated program cc1plus', 'MAX_JOBS=1'),
        ('ERROR: No matching distribution found for numpy==2.5.5', 'Python 3.12'),
        ('something that nobody has seen before', 'Read the log'),
    ],
)
def test_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str):
    monkeypatch.syspath_prepend(ROOT / 'bootstrap')
    from advice import advise

    (tmp_path / 'log').write_text(f'before\n{line}\nafter\n')
    assert words in advise(tmp_path / 'log')
