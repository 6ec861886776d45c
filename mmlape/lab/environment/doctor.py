"""Check what this installation needs, by running it where that is possible.

Works without torch or any MM package.
"""

import importlib
import os
import platform
import shutil
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from mmlape.lab.environment import stack
from mmlape.lab.environment.lock import everything_line, install_line, library_line
from mmlape.lab.environment.packages import (
    CORE_LIBRARIES,
    LIBRARIES,
    OF_OPENMMLAB,
    PACKAGES,
    SAFE_TORCH,
    importable,
    installed,
)
from mmlape.lab.environment.stack import StackProblem
from mmlape.mmcv_ops import ops_in_use


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str  # what was checked
    state: str  # what is there
    problem: StackProblem | None = None  # what is wrong with it, or None
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
    """Check Python, torch, CUDA, the MM packages, mmcv's ops, deformops, COCO AP in C++, memory, disk.

    Where no MM package is installed, nothing that training needs is a problem.
    """
    complete = with_openmmlab()
    missing = stack.library_problem(LIBRARIES if complete else CORE_LIBRARIES)
    checks = [
        Check('Python', f'{platform.python_version()} ({sys.executable})'),
        Check('libraries', 'some are missing' if missing else 'all installed', missing),
    ]
    modules = [module for module in PACKAGES if complete or module == 'torch' or installed(module)]
    packages = {module: _package(module) for module in modules}
    checks += packages.values()
    if not complete:
        checks.append(Check('OpenMMLab', 'not installed: needed for training only', tried=False))
    torch_version = (installed('torch') or ('', '?'))[1]
    if stack.is_older(torch_version, SAFE_TORCH):
        what = f'with torch before {SAFE_TORCH} a malicious checkpoint can corrupt memory: read files of known authors'
        state = f'less safe with torch {torch_version} (CVE-2026-24747)'
        checks.append(Check('checkpoints', state, StackProblem(what, install_line('torch')), needed=False))
    torch_runs = packages['torch'].problem is None
    checks.append(_cuda() if torch_runs else Check('CUDA', 'unknown without torch', tried=False))
    if complete:
        imports = torch_runs and packages['mmcv'].problem is None
        checks += [_ops(device, imports) for device in ('cpu', 'cuda')]
        checks.append(_faster_coco_eval())
    return [*checks, _deformops('mmcv' if complete else 'PyTorch'), *_space()]


def _package(module: str) -> Check:
    """Check a package of the stack: which distribution, which version, and whether it imports."""
    distribution = installed(module)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        problem = stack.presence_problem(module) or stack.import_problem(module)
    if distribution is None:
        return Check(module, 'not installed', problem)
    origin = '' if len(PACKAGES[module].distributions) == 1 else f' from {distribution[0]}'
    return Check(module, distribution[1] + origin, problem)


def _cuda() -> Check:
    """Check the devices that torch sees; without one, everything runs on the CPU, slowly."""
    import torch

    built, problem = torch.version.cuda, None
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        try:
            torch.ones(8, device='cuda').sum().item()
        except Exception as error:
            what = f'a computation on the GPU fails: {stack.first_line(error)}'
            problem = StackProblem(what, install_line('torch'))
        return Check('CUDA', f'{built}: {len(names)} x {", ".join(dict.fromkeys(names))}', problem)
    if built:
        state, what = (f'{built}, no device', f'there is an NVIDIA GPU, but its driver does not serve CUDA {built}')
        line = 'nvidia-smi  # shows the driver and its CUDA version; install a driver for that version or newer'
    else:
        state, what = ('torch was built without it', 'there is an NVIDIA GPU that this torch cannot use')
        line = install_line('torch').replace('pip install', 'pip install --force-reinstall')
    # the kernel shows a GPU that CUDA_VISIBLE_DEVICES hides
    if Path('/proc/driver/nvidia/gpus').is_dir() and os.environ.get('CUDA_VISIBLE_DEVICES') != '':
        problem = StackProblem(what, line)
    return Check('CUDA', f'{state}: training runs on the CPU', problem, needed=False)


def _ops(device: str, imports: bool) -> Check:
    name = f'mmcv ops, {device.upper()}'
    if not imports:
        return Check(name, 'unknown until torch and mmcv import', tried=False)
    if device == 'cuda' and not importlib.import_module('torch').cuda.is_available():
        return Check(name, 'not tried: no device', tried=False)
    problem = stack.ops_problem(device)
    return Check(name, 'missing or broken' if problem else f'NMS and RoIAlign run ({ops_in_use()})', problem)


def _faster_coco_eval() -> Check:
    """Check the other backend of `mmlape.CocoMetric`, which nothing needs."""
    if not importable('faster_coco_eval'):
        state = 'faster-coco-eval is not installed: pycocotools computes AP'
        return Check('COCO AP', state, tried=False)
    state = f"pycocotools; faster-coco-eval {version('faster-coco-eval')} by CocoMetric(backend='faster')"
    return Check('COCO AP', state)


def _deformops(instead: str) -> Check:
    """Check deformable attention's Triton kernels, which have releases for some versions of Python only."""
    state, what = ('not installed', 'deformops is not installed: on CUDA, deformable attention is slower')
    if importable('deformops'):
        try:
            importlib.import_module('deformops')
            return Check('deformops', f'{version("deformops")}: Triton kernels on CUDA')
        except Exception as error:
            state, what = 'does not import', f'deformops does not import: {error}'
    elif not (3, 12) <= sys.version_info < (3, 14):
        state, what = f'has no release for Python {sys.version_info[0]}.{sys.version_info[1]}', ''
    problem = StackProblem(what, library_line('deformops')) if what else None
    return Check('deformops', f"{state}: {instead}'s op stands in", problem, needed=False)


def _space() -> list[Check]:
    """Check /dev/shm, through which data loader workers hand over batches, and the disk, which takes checkpoints."""
    checks = []
    for name, folder, least, what, line in (
        ('/dev/shm', '/dev/shm', 1, "the data loader's workers may die with a bus error",
         'mount -o remount,size=8G /dev/shm  # in Docker: docker run --shm-size=8g ...'),
        ('disk', os.getcwd(), 5, 'checkpoints may not fit',
         'du -xh --max-depth=2 . | sort -h | tail  # shows what takes the room; or train with --work-dir elsewhere'),
    ):  # fmt: skip
        free = shutil.disk_usage(folder).free / 1e9 if Path(folder).is_dir() else 0.0
        problem = None
        if free < least:
            problem = StackProblem(f'{folder} has less than {least} GB free: {what}', line)
        checks.append(Check(name, f'{free:.1f} GB free in {folder}', problem, needed=False))
    return checks


def show(checks: list[Check]) -> int:
    """Print the table, then every problem with the line that fixes it.

    Returns:
        1 if something is missing that this installation needs, else 0.
    """
    for check in checks:
        print(f'{check.mark:<5}{check.name:<16}{check.state}')
    for severity, mark in (('problem', 'FAIL'), ('warning', 'warn')):
        for problem in stack.merged([check.problem for check in checks if check.mark == mark]):
            print(f'{severity}: {problem.what}\n    {problem.fix}')
    broken = any(check.mark == 'FAIL' for check in checks)
    if with_openmmlab():
        if broken and (everything := everything_line()):
            print(f'everything at once: {everything}')
        print('training cannot run here' if broken else 'training can run here')
        return int(broken)
    print(f'models and checkpoints {"cannot" if broken else "can"} be used here')
    print(f'for training, in an environment of its own: {everything_line()}')
    return int(broken)
