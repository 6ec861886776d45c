"""Problems of the stack (torch, the MM packages, mmcv's ops), each with the line that fixes it.

Nothing heavy is imported before it is asked for.
"""

import importlib
import re
import sys
from dataclasses import dataclass

from mmlape.errors import StackError
from mmlape.lab.environment.lock import everything_line, install_line, library_line
from mmlape.lab.environment.packages import EXPERIMENTS, LIBRARIES, OF_OPENMMLAB, PACKAGES, importable, installed
from mmlape.mmcv_ops import lend_ops

_DISTRIBUTIONS = {
    'PIL': 'pillow',
    'cv2': 'opencv-python-headless',
    'modelindex': 'model-index',
    'skimage': 'scikit-image',
    'sklearn': 'scikit-learn',
    'yaml': 'pyyaml',
}
"""Distributions whose name is not that of their module."""


@dataclass(frozen=True)
class StackProblem:
    """Something that is wrong with the stack, and the shell line that fixes it."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f'{self.what}\n    fix: {self.fix}'


def presence_problem(module: str) -> StackProblem | None:
    """Return what is wrong with a package according to its metadata, without importing it."""
    distribution = installed(module)
    if distribution is None:
        return StackProblem(f'{module} is not installed', install_line(module))
    package = PACKAGES[module]
    if len(package.installed) > 1:
        what = f'{" and ".join(package.installed)} are both installed, and write into one folder'
        both = f'{sys.executable} -m pip uninstall -y {" ".join(package.installed)} && {install_line(module)}'
        return StackProblem(what, both)
    oldest = package.oldest
    if is_older(distribution[1], oldest):
        what = f'{distribution[0]} {distribution[1]} is too old: mmlape needs {oldest} or newer'
        return StackProblem(what, install_line(module))
    return None


def is_older(version: str, other: str) -> bool:
    """Return whether a version is older than another one; '?' is unknown, and not older."""
    return version != '?' and _numbers(version) < _numbers(other)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'\d+', text.partition('+')[0])[:3]]


def library_problem(modules: tuple[str, ...] = LIBRARIES) -> StackProblem | None:
    """Return which libraries, by default those that mmlape and the MM packages import, are not installed at all."""
    missing = [_DISTRIBUTIONS.get(name, name) for name in modules if not importable(name)]
    if not missing:
        return None
    return StackProblem(f'not installed: {", ".join(missing)}', library_line(*missing))


def import_problem(module: str) -> StackProblem | None:
    """Return why a package does not import, or None; the import is real, and heavy."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return StackProblem(f'{module} does not import: {first_line(error)}', _import_fix(module, error))
    return None


def _import_fix(module: str, error: Exception) -> str:
    """Return the line for a package that is installed and does not import.

    Mostly, something else is missing.
    """
    missing = getattr(error, 'name', None) or ''
    if missing.startswith('mmcv.'):
        return install_line('mmcv')
    if not isinstance(error, ModuleNotFoundError) or not missing:
        return install_line(module)
    if missing in PACKAGES:
        return install_line(missing)
    if missing.partition('.')[0] in PACKAGES:
        return install_line(module)
    return library_line(_DISTRIBUTIONS.get(missing, missing))


def ops_problem(device: str = 'cpu') -> StackProblem | None:
    """Return why mmcv's ops cannot be used on a device, or None.

    NMS and RoIAlign are run, because an extension may load and still lack an operator.
    """
    line = install_line('mmcv')  # without compiled ops, for which mmlape has its own
    try:
        import torch

        lend_ops()
        ext = importlib.import_module('mmcv._ext')
        boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.2], [8.0, 8.0, 9.0, 9.0]], device=device)
        scores = torch.tensor([0.9, 0.8, 0.7], device=device)
        kept = ext.nms(boxes, scores, iou_threshold=0.5, offset=0).tolist()
        image, box = torch.full((1, 1, 8, 8), 3.0), torch.tensor([[0.0, 1.0, 1.0, 5.0, 5.0]])
        pooled = importlib.import_module('mmcv.ops').roi_align(image.to(device), box.to(device), 2).cpu()
    except ModuleNotFoundError as error:
        if (error.name or '').startswith('mmcv._ext'):
            return StackProblem("mmcv has no ops ('mmcv._ext' is missing)", f'{sys.executable} -m mmlape install-ops')
        return StackProblem(f'mmcv does not import: {first_line(error)}', _import_fix('mmcv', error))
    except Exception as error:
        return StackProblem(f"mmcv's ops do not run on {device.upper()}: {first_line(error)}", line)
    if kept != [0, 2] or not torch.allclose(pooled, torch.full_like(pooled, 3.0)):
        return StackProblem(f"mmcv's ops are wrong on {device.upper()}: NMS keeps {kept} of [0, 2]", line)
    return None


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return (str(error).strip().splitlines() or [''])[0] or type(error).__name__


def merged(problems: list[StackProblem]) -> list[StackProblem]:
    """Join the problems that one line fixes."""
    by_line: dict[str, list[str]] = {}
    for problem in problems:
        by_line.setdefault(problem.fix, []).append(problem.what)
    return [StackProblem('; '.join(whats), line) for line, whats in by_line.items()]


def missing_extra(error: Exception) -> StackError | None:
    """Return the error, in one line, of an import that lacks what an extra brings.

    None if something else is wrong.
    """
    module = (getattr(error, 'name', None) or '').partition('.')[0]
    if not module or importable(module) or not importable('torch'):
        return None
    if module in EXPERIMENTS:
        return StackError(f'this command needs {module}, which is not installed: {_pip("mmlape[experiments]")}')
    if not any(map(importable, OF_OPENMMLAB)):
        return StackError(f"this command needs OpenMMLab's stack; {module} is not installed: {_pip('mmlape[stack]')}")
    return None


def _pip(extra: str) -> str:
    return f"{sys.executable} -m pip install '{extra}'"


def require_stack() -> None:
    """Stop with one clear message unless the stack works.

    All packages, and mmcv's ops, two of which are run.

    Raises:
        StackError: Something is missing, too old or broken; the message has a line for each that
            fixes it.
    """
    results = [presence_problem(module) for module in PACKAGES]
    if not any(results):
        results = [import_problem(module) for module in ('torch', 'mmengine', 'mmcv')]
    if not any(results):
        results.append(ops_problem())
    problems = merged([problem for problem in results if problem])
    if problems:
        lines = [f'  {problem}' for problem in problems]
        if everything := everything_line():
            lines.append(f'  or everything at once: {everything}')
        raise StackError('\n'.join(['the stack cannot be used (`mmlape doctor` tells more):', *lines]))
