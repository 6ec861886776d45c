"""The packages of the stack: what is installed, why an import failed, and the shell line that fixes it.

Each MM package has distributions with one import name: of the maintained fork, and the original's. Works without torch
or any MM package; what is wrong is found by importing them, and nothing is imported before it is asked for.
"""

import importlib
import importlib.util
import operator
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mmlape.errors import StackError, shown
from mmlape.openmmlab.mmcv_ops import lend_ops


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
LOCK = Path(__file__).resolve().parents[1] / 'requirements.txt'
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


_DISTRIBUTIONS = {
    'PIL': 'pillow',
    'cv2': 'opencv-python-headless',
    'modelindex': 'model-index',
    'skimage': 'scikit-image',
    'sklearn': 'scikit-learn',
    'yaml': 'pyyaml',
}
"""Distributions whose name is not that of their module."""


def with_openmmlab() -> bool:
    """Return whether this installation is one for training with OpenMMLab: any of its packages is there.

    Without one, as beside timm or transformers, mmlape is its models and checkpoints.
    """
    return any(installed(module) for module in OF_OPENMMLAB)


def _presence_problem(module: str) -> str | None:
    """Return what is wrong with a package according to its metadata, without importing it."""
    distribution, package = installed(module), PACKAGES[module]
    if distribution is None:
        return f'{module} is not installed\n    {install_line(module)}'
    if len(package.installed) > 1:
        what = f'{" and ".join(package.installed)} are both installed, and write into one folder'
        both = f'{sys.executable} -m pip uninstall -y {" ".join(package.installed)} && {install_line(module)}'
        return f'{what}\n    {both}'
    if _is_older(distribution[1], package.oldest):
        what = f'{" ".join(distribution)} is too old: mmlape needs {package.oldest} or newer'
        return f'{what}\n    {install_line(module)}'
    return None


def _is_older(version: str, other: str) -> bool:
    """Return whether a version is older than another one; '?' is unknown, and not older."""
    numbers = [list(map(int, re.findall(r'\d+', text.partition('+')[0])[:3])) for text in (version, other)]
    return version != '?' and numbers[0] < numbers[1]


def _import_problem(module: str) -> str | None:
    """Return why a package does not import, or None; the import is real, and heavy."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return f'{module} does not import: {shown(error)}\n    {_import_fix(module, error)}'
    return None


def _import_fix(module: str, error: Exception) -> str:
    """Return the line for a package that does not import: mostly, something else is missing."""
    name = error.name if isinstance(error, ModuleNotFoundError) and error.name else module
    missing = name.partition('.')[0]
    return install_line(missing) if missing in PACKAGES else library_line(_DISTRIBUTIONS.get(missing, missing))


def _ops_problem() -> str | None:
    """Return why mmcv's ops cannot be used, or None.

    NMS and RoIAlign are run, because an extension may load and still lack an operator.
    """
    try:
        import torch

        boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [8.0, 8.0, 9.0, 9.0]])
        lend_ops()
        importlib.import_module('mmcv._ext').nms(boxes, boxes[:, 2], iou_threshold=0.5, offset=0)
        image, box = torch.ones(1, 1, 8, 8), torch.tensor([[0.0, 1.0, 1.0, 5.0, 5.0]])
        importlib.import_module('mmcv.ops').roi_align(image, box, 2)
    except ModuleNotFoundError as error:
        if (error.name or '').startswith('mmcv._ext'):
            return f"mmcv has no ops ('mmcv._ext' is missing)\n    {sys.executable} -m mmlape install-ops"
        return f'mmcv does not import: {shown(error)}\n    {_import_fix("mmcv", error)}'
    except Exception as error:  # reinstalled without compiled ops, for which mmlape has its own
        return f"mmcv's ops do not run: {shown(error)}\n    {install_line('mmcv')}"
    return None


def stack_problems() -> list[str]:
    """Return what is wrong with the packages of this installation, each with the line that fixes it.

    Where no MM package is installed, torch alone is asked for.
    """
    if not with_openmmlab():
        return [problem for problem in [_presence_problem('torch') or _import_problem('torch')] if problem]
    problems = [problem for name in PACKAGES if (problem := _presence_problem(name))]
    problems = problems or [problem for name in PACKAGES if (problem := _import_problem(name))]
    return problems or [problem for problem in [_ops_problem()] if problem]


def stack_error(error: BaseException) -> StackError | None:
    """Return the error of the installed stack, the usual cause of an import that failed; None if it has none.

    It is of what an extra brings, in one line, or has a line for each package that is missing, too old or broken, and
    for mmcv's ops, two of which are run.
    """
    module = (getattr(error, 'name', None) or '').partition('.')[0]
    if module and importable('torch') and not importable(module):
        pip = f"{sys.executable} -m pip install 'mmlape"
        if module in EXPERIMENTS:
            return StackError(f"this command needs {module}, which is not installed: {pip}[experiments]'")
        if not with_openmmlab():
            return StackError(f"this command needs OpenMMLab's stack; {module} is not installed: {pip}[stack]'")
    problems = stack_problems()
    lines = ''.join(f'\n  {problem}' for problem in problems)
    return StackError(f'the stack cannot be used:{lines}') if problems else None
