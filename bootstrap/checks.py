"""What the set-up needs before it starts: compiler, headers, venv module, disk."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

NEEDED_GB = 8.0  # of which torch and its libraries take 4.7
_PYTHON = f'python3.{sys.version_info.minor}'  # Debian has a package for each version
_WHAT = {'g++': 'the C++ compiler', f'{_PYTHON}-venv': "Python's venv module", f'{_PYTHON}-dev': "Python's headers"}


def missing_packages() -> list[str]:
    """Return the Debian packages that the set-up needs and this machine lacks."""
    missing = []
    if not shutil.which((os.environ.get('CXX') or 'c++').split()[0]) and not shutil.which('g++'):
        missing.append('g++')
    if importlib.util.find_spec('ensurepip') is None or importlib.util.find_spec('venv') is None:
        missing.append(f'{_PYTHON}-venv')
    if not Path(sysconfig.get_paths()['include'], 'Python.h').exists():
        missing.append(f'{_PYTHON}-dev')
    return missing


def _apt_line(packages: list[str]) -> list[str]:
    return ['apt-get', 'install', '-y', '--no-install-recommends', *packages]


def provide_packages() -> None:
    """Install compiler, headers and venv module where they are missing.

    Root on a Debian machine gets them installed, with a message (`MMLAPE_NO_APT=1` forbids it); anyone else gets the
    line to type.

    Raises:
        SystemExit: Something is missing and could not be installed.
    """
    missing = missing_packages()
    if not missing:
        return
    print('set-up: missing: ' + ', '.join(f'{_WHAT[name]} ({name})' for name in missing), flush=True)
    if os.geteuid() == 0 and shutil.which('apt-get') and not os.environ.get('MMLAPE_NO_APT'):
        print(f'set-up: {" ".join(_apt_line(missing))}', flush=True)
        quiet = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
        subprocess.run(['apt-get', 'update', '-q'], env=quiet, stdout=subprocess.DEVNULL)
        if subprocess.run(_apt_line(missing), env=quiet, stdout=subprocess.DEVNULL).returncode == 0:
            importlib.invalidate_caches()
            missing = missing_packages()
    if missing:
        raise SystemExit(
            f'set-up: stopped. Install what is missing, then call it again:\n    {" ".join(_apt_line(missing))}\n'
            f'(Python here is {sys.executable}; another one: make setup PYTHON=/path/to/python3.12)'
        )


def check_disk(venv: Path) -> None:
    """Refuse to start without room for torch and its CUDA libraries.

    Raises:
        SystemExit: Too little room.
    """
    have = shutil.disk_usage(venv.parent).free / 1e9
    if have < NEEDED_GB:
        raise SystemExit(
            f'set-up: stopped. {venv.parent} has {have:.1f} GB free, and the environment needs {NEEDED_GB:.0f} GB. '
            'Make room, or put .venv elsewhere: make setup VENV=/roomy/place'
        )
