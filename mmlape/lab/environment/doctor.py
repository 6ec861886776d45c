"""Why an import failed: what the installed stack lacks, found by importing it, with the line that installs it.

Works without torch or any MM package; nothing heavy is imported before it is asked for.
"""

import importlib
import re
import sys

from mmlape.errors import StackError, shown
from mmlape.lab.environment.packages import (
    EXPERIMENTS,
    OF_OPENMMLAB,
    PACKAGES,
    importable,
    install_line,
    installed,
    library_line,
)
from mmlape.openmmlab.mmcv_ops import lend_ops

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
