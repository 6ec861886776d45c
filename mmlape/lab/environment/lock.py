"""Shell lines that install what is missing, at the versions of `requirements.txt`.

Standard library only.
"""

import operator
import re
import sys
from functools import cache
from pathlib import Path

from mmlape.lab.environment.packages import PACKAGES, is_original_stack

LOCK = Path(__file__).resolve().parents[2] / 'requirements.txt'
"""Every package of the stack with version and hashes, for each supported Python, as `make lock`
writes it."""


@cache
def locked() -> dict[str, set[str]]:
    """Return the versions of each package of the lock for this Python.

    There are several where they depend on the platform.
    """
    versions: dict[str, set[str]] = {}
    for line in LOCK.read_text(encoding='utf-8').splitlines():
        match = re.match(r'([\w.-]+)==([^ ;\\]+)(.*)', line)
        if match and _is_for_this_python(match[3]):
            versions.setdefault(match[1], set()).add(match[2])
    return versions


def _is_for_this_python(marker: str) -> bool:
    """Evaluate the conditions that uv writes, all of them on the minor version."""
    holds = {'<': operator.lt, '>=': operator.ge, '==': operator.eq}
    limits = re.findall(r"python_full_version (<|>=|==) '(\d+)\.(\d+)", marker)
    return all(holds[sign](sys.version_info[:2], (int(major), int(minor))) for sign, major, minor in limits)


def pinned(name: str) -> str:
    """Return `name==version`, or the name alone where the version depends on the platform."""
    versions = locked().get(name, set())
    return f'{name}=={next(iter(versions))}' if len(versions) == 1 else name


def install_line(module: str) -> str:
    """Return the shell line that installs a package of the stack, by its import name, into the running environment."""
    torchs = ('torch', 'torchvision')
    names = list(torchs) if module in torchs else [PACKAGES[module].distributions[0]]
    if module.startswith('mm') and is_original_stack():
        return f'{_pip()} --no-deps {PACKAGES[module].original}'
    if module == 'mmdet':
        names.append('imaug')
    flags = ''
    if module.startswith('mm'):  # the MM packages ask for both packages of OpenCV
        flags = '--no-deps '
    if module == 'mmcv':  # it is taken without ops, which mmlape brings
        flags = '--no-deps --no-cache-dir --force-reinstall '
    return f'{_pip()} {flags}{" ".join(map(pinned, names))}'


def library_line(*names: str) -> str:
    """Return the shell line that installs libraries."""
    return f'{_pip()} {" ".join(map(pinned, names))}'


def everything_line() -> str | None:
    """Return the line that installs the complete stack again.

    None where it would join the original MM packages.
    """
    if is_original_stack():
        return None
    root = Path(__file__).resolve().parents[3]
    if (root / 'bootstrap' / 'setup.sh').exists():
        return f'make -B -C {root} setup'
    return f'{_pip()} --no-deps -r {LOCK}'


def _pip() -> str:
    return f'{sys.executable} -m pip install'
