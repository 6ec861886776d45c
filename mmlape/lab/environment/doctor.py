"""What this installation lacks, found by running it where that is possible, with the line that installs it.

Works without torch or any MM package; nothing heavy is imported before it is asked for.
"""

import importlib
import platform
import re
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from mmlape.errors import StackError, shown
from mmlape.lab.environment.packages import (
    CORE_LIBRARIES,
    EXPERIMENTS,
    LIBRARIES,
    OF_OPENMMLAB,
    PACKAGES,
    importable,
    install_line,
    installed,
    library_line,
)
from mmlape.mmcv_ops import lend_ops, ops_in_use

_DISTRIBUTIONS = {
    'PIL': 'pillow',
    'cv2': 'opencv-python-headless',
    'modelindex': 'model-index',
    'skimage': 'scikit-image',
    'sklearn': 'scikit-learn',
    'yaml': 'pyyaml',
}
"""Distributions whose name is not that of their module."""
SAFE_TORCH = '2.10.0'
"""The first torch in which ``weights_only=True`` keeps a checkpoint from corrupting memory
(CVE-2026-24747)."""
_OPTIONAL = (
    ('COCO AP', 'faster_coco_eval', "matched in C++ by CocoMetric(backend='faster')", 'pycocotools matches'),
    ('deformops', 'deformops', "deformable attention's Triton kernels on CUDA", "mmcv's or PyTorch's op stands in"),
)
"""Name in the table, module, what it brings, and what is used without it."""


def problem_of(what: str, fix: str) -> str:
    """Return something that is wrong with the stack, and the shell line that fixes it."""
    return f'{what}\n    {fix}'


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str  # what was checked
    state: str  # what is there
    problem: str | None = None  # what is wrong with it, or None
    # whether training is impossible without it; a problem then makes the exit status 1
    needed: bool = True
    tried: bool = True  # whether it could be checked

    @property
    def mark(self) -> str:
        """'ok', 'FAIL', 'warn' or '-'."""
        if self.problem:
            return 'FAIL' if self.needed else 'warn'
        return 'ok' if self.tried else '-'


def with_openmmlab() -> bool:
    """Return whether this installation is one for training with OpenMMLab: any of its packages is there.

    Without one, as beside timm or transformers, mmlape is its models and checkpoints.
    """
    return any(installed(module) for module in OF_OPENMMLAB)


def examine() -> list[Check]:
    """Check Python, torch, CUDA, the MM packages, mmcv's ops, and what is optional.

    Where no MM package is installed, nothing that training needs is a problem.
    """
    complete = with_openmmlab()
    libraries = LIBRARIES if complete else CORE_LIBRARIES
    missing = [_DISTRIBUTIONS.get(name, name) for name in libraries if not importable(name)]
    lack = problem_of(f'not installed: {", ".join(missing)}', library_line(*missing)) if missing else None
    checks = [
        Check('Python', f'{platform.python_version()} ({sys.executable})'),
        Check('libraries', 'some are missing' if missing else 'all installed', lack),
    ]
    modules = [module for module in PACKAGES if complete or module == 'torch' or installed(module)]
    packages = {module: _package(module) for module in modules}
    checks += packages.values()
    if not complete:
        checks.append(Check('OpenMMLab', 'not installed: needed for training only', tried=False))
    torch_version = (installed('torch') or ('', '?'))[1]
    if _is_older(torch_version, SAFE_TORCH):
        what = f'with torch before {SAFE_TORCH} a malicious checkpoint can corrupt memory: read files of known authors'
        state = f'less safe with torch {torch_version} (CVE-2026-24747)'
        checks.append(Check('checkpoints', state, problem_of(what, install_line('torch')), needed=False))
    torch_runs = packages['torch'].problem is None
    checks.append(_cuda() if torch_runs else Check('CUDA', 'unknown without torch', tried=False))
    if complete:
        imports = torch_runs and packages['mmcv'].problem is None
        checks += [_ops(device, imports) for device in ('cpu', 'cuda')]
    for name, module, brings, instead in _OPTIONAL:
        there, distribution = importable(module), module.replace('_', '-')
        state = f'{version(distribution)}: {brings}' if there else f'is not installed: {instead}'
        checks.append(Check(name, f'{distribution} {state}', tried=there))
    return checks


def _package(module: str) -> Check:
    """Check a package of the stack: which distribution, which version, and whether it imports."""
    distribution = installed(module)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        problem = _presence_problem(module) or _import_problem(module)
    if distribution is None:
        return Check(module, 'not installed', problem)
    origin = '' if len(PACKAGES[module].distributions) == 1 else f' from {distribution[0]}'
    return Check(module, distribution[1] + origin, problem)


def _presence_problem(module: str) -> str | None:
    """Return what is wrong with a package according to its metadata, without importing it."""
    distribution, package = installed(module), PACKAGES[module]
    if distribution is None:
        return problem_of(f'{module} is not installed', install_line(module))
    if len(package.installed) > 1:
        what = f'{" and ".join(package.installed)} are both installed, and write into one folder'
        both = f'{sys.executable} -m pip uninstall -y {" ".join(package.installed)} && {install_line(module)}'
        return problem_of(what, both)
    if _is_older(distribution[1], package.oldest):
        what = f'{" ".join(distribution)} is too old: mmlape needs {package.oldest} or newer'
        return problem_of(what, install_line(module))
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
        return problem_of(f'{module} does not import: {shown(error)}', _import_fix(module, error))
    return None


def _import_fix(module: str, error: Exception) -> str:
    """Return the line for a package that does not import: mostly, something else is missing."""
    name = error.name if isinstance(error, ModuleNotFoundError) and error.name else module
    missing = name.partition('.')[0]
    return install_line(missing) if missing in PACKAGES else library_line(_DISTRIBUTIONS.get(missing, missing))


def _cuda() -> Check:
    """Check the devices that torch sees; without one, everything runs on the CPU, slowly."""
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check('CUDA', f'{torch.version.cuda}: {len(names)} x {", ".join(dict.fromkeys(names))}')
    state = f'{torch.version.cuda}, no device' if torch.version.cuda else 'torch was built without it'
    return Check('CUDA', f'{state}: training runs on the CPU')


def _ops(device: str, imports: bool) -> Check:
    name = f'mmcv ops, {device.upper()}'
    if not imports:
        return Check(name, 'unknown until torch and mmcv import', tried=False)
    if device == 'cuda' and not importlib.import_module('torch').cuda.is_available():
        return Check(name, 'not tried: no device', tried=False)
    problem = _ops_problem(device)
    return Check(name, 'missing or broken' if problem else f'NMS and RoIAlign run ({ops_in_use()})', problem)


def _ops_problem(device: str = 'cpu') -> str | None:
    """Return why mmcv's ops cannot be used on a device, or None.

    NMS and RoIAlign are run, because an extension may load and still lack an operator.
    """
    try:
        import torch

        boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [8.0, 8.0, 9.0, 9.0]], device=device)
        lend_ops()
        importlib.import_module('mmcv._ext').nms(boxes, boxes[:, 2], iou_threshold=0.5, offset=0)
        image, box = torch.ones(1, 1, 8, 8, device=device), torch.tensor([[0.0, 1.0, 1.0, 5.0, 5.0]], device=device)
        importlib.import_module('mmcv.ops').roi_align(image, box, 2)
    except ModuleNotFoundError as error:
        if (error.name or '').startswith('mmcv._ext'):
            return problem_of("mmcv has no ops ('mmcv._ext' is missing)", f'{sys.executable} -m mmlape install-ops')
        return problem_of(f'mmcv does not import: {shown(error)}', _import_fix('mmcv', error))
    except Exception as error:  # reinstalled without compiled ops, for which mmlape has its own
        return problem_of(f"mmcv's ops do not run on {device.upper()}: {shown(error)}", install_line('mmcv'))
    return None


def show(checks: list[Check]) -> int:
    """Print the table, then every problem with the line that fixes it.

    Returns:
        1 if something is missing that this installation needs, else 0.
    """
    for check in checks:
        print(f'{check.mark:<5}{check.name:<16}{check.state}')
    for severity, mark in (('problem', 'FAIL'), ('warning', 'warn')):
        for check in checks:
            if check.mark == mark:
                print(f'{severity}: {check.problem}')
    broken = any(check.mark == 'FAIL' for check in checks)
    if with_openmmlab():
        print('training cannot run here' if broken else 'training can run here')
        return int(broken)
    print(f'models and checkpoints {"cannot" if broken else "can"} be used here')
    root = Path(__file__).resolve().parents[3]
    source = root if (root / 'pyproject.toml').exists() else 'mmlape'
    print(
        f"for training, make an environment of its own: python3 -m venv NEW && NEW/bin/pip install '{source}[stack]'"
    )
    return int(broken)


def stack_error(error: Exception) -> StackError | None:
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
    problems = [problem for name in PACKAGES if (problem := _presence_problem(name))]
    problems = problems or [problem for name in ('torch', 'mmengine', 'mmcv') if (problem := _import_problem(name))]
    problems = problems or [problem for problem in [_ops_problem()] if problem]
    lines = ''.join(f'\n  {problem}' for problem in problems)
    return StackError(f'the stack cannot be used (`mmlape doctor` tells more):{lines}') if problems else None
