"""The packages of the stack: what of them is installed, and the shell line that installs what is not.

Each MM package has distributions with one import name: of the maintained fork, and the original's. Nothing is
imported; standard library only.
"""

import importlib.util
import operator
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A package of the stack."""

    module: str  # import name
    # names under which it is distributed: the pinned one, the original one, and what else has its
    # modules
    distributions: tuple[str, ...]
    oldest: str  # oldest supported version, which ``tests/floors.sh`` tests

    @property
    def installed(self) -> list[str]:
        """The distributions that are installed."""
        return [name for name in self.distributions if _version(name)]


# torch: weights_only=True that runs no code, which CVE-2025-32434 made it do up
# to 2.5.1; others: the oldest that were run with it (the wheel of mmseg 1.2.0 lacks a file;
# mmengine 0.10.0 resumes EMA weights wrongly)
PACKAGES = {
    package.module: package
    for package in (
        Package('torch', ('torch',), '2.6.0'),
        Package('torchvision', ('torchvision',), '0.21.0'),
        Package('mmengine', ('onedl-mmengine', 'mmengine'), '0.10.7'),
        Package('mmcv', ('onedl-mmcv', 'mmcv', 'mmcv-lite'), '2.1.0'),
        Package('mmdet', ('onedl-mmdetection', 'mmdet'), '3.2.0'),
        Package('mmseg', ('onedl-mmsegmentation', 'mmsegmentation'), '1.2.1'),
        Package('mmpretrain', ('onedl-mmpretrain', 'mmpretrain'), '1.1.0'),
        Package('timm', ('timm',), '0.9.2'),
    )
}

OF_OPENMMLAB = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain')
EXPERIMENTS = (
    'jinja2', 'matplotlib', 'pandas', 'PIL', 'portalocker', 'rich', 'scipy', 'sklearn', 'statsmodels', 'yaml',
)  # fmt: skip
"""Modules of the extra [experiments]."""
LOCK = Path(__file__).resolve().parents[2] / 'requirements.txt'
"""Every package of the stack with version and hashes, for each supported Python, as `make lock`
writes it."""


def is_original_stack() -> bool:
    """Return whether the MM packages that are installed are the original ones, beside which the fork's cannot be."""
    packages = [package for package in PACKAGES.values() if len(package.distributions) > 1]
    fork = any(_version(package.distributions[0]) for package in packages)
    return not fork and any(package.installed for package in packages)


def importable(module: str) -> bool:
    """Return whether Python finds a module, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def installed(module: str) -> tuple[str, str] | None:
    """Return the distribution and the version of an installed package of the stack, or None.

    A package that is on the path without having been installed (a checkout) has the version '?'.
    """
    if not importable(module):
        return None
    for name in PACKAGES[module].installed:
        return name, _version(name) or '?'
    return f'{module} (not installed, on the path only)', '?'


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


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


def library_line(*names: str, flags: str = '') -> str:
    """Return the shell line that installs distributions, at the versions of the lock if these hold on any platform."""
    versions = {name: locked().get(name, ()) for name in names}
    pinned = [f'{name}=={next(iter(known))}' if len(known) == 1 else name for name, known in versions.items()]
    return f'{sys.executable} -m pip install {flags}{" ".join(pinned)}'


def install_line(module: str) -> str:
    """Return the shell line that installs a package of the stack, by its import name, into the running environment."""
    package = PACKAGES[module]
    if module in ('torch', 'torchvision'):
        return library_line('torch', 'torchvision')
    if not module.startswith('mm'):
        return library_line(*package.distributions)
    # the MM packages ask for both packages of OpenCV; of mmcv's originals, the last one needs no compiler
    if is_original_stack():
        name = f'mmcv-lite=={package.oldest}' if module == 'mmcv' else package.distributions[1]
        return library_line(name, flags='--no-deps ')
    flags = '--no-deps --no-cache-dir --force-reinstall ' if module == 'mmcv' else '--no-deps '
    return library_line(package.distributions[0], *['imaug'] * (module == 'mmdet'), flags=flags)
