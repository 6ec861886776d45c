"""Looks at everything that training needs, really runs what can be run, and works without torch or any MM package."""

import importlib
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from mmlape.environment import stack
from mmlape.environment.stack import Problem

SHM_GB = 1.0
DISK_GB = 5.0


@dataclass(frozen=True)
class Finding:
    """One line of the table.

    Args:
        name: What was looked at.
        state: What was found.
        problem: What is wrong with it, or None.
        needed: Training cannot do without it: the exit status is 1.
        tried: False where it could not be looked at.
    """

    name: str
    state: str
    problem: Problem | None = None
    needed: bool = True
    tried: bool = True


def examine() -> list[Finding]:
    """Look at Python, torch, CUDA, the MM packages, the compiled ops, deformops, memory, disk and compiler."""
    findings = [python()]
    packages = {module: package(module) for module in stack.PACKAGES}
    findings.append(libraries())
    findings.extend(packages.values())
    torch_runs = packages['torch'].problem is None
    findings.append(cuda() if torch_runs else Finding('CUDA', 'unknown without torch', tried=False))
    findings.extend(ops(torch_runs and packages['mmcv'].problem is None))
    findings.extend([deformops(), shared_memory(), disk(), compiler()])
    return findings


def python() -> Finding:
    """The interpreter; an older one than 3.10 does not get here."""
    return Finding('Python', f'{platform.python_version()} ({sys.executable})')


def package(module: str) -> Finding:
    """A package of the stack: which distribution, which version, and whether it imports."""
    found = stack.installed(module)
    problem = stack.presence_problem(module)
    if problem is None:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            problem = stack.import_problem(module)
    if found is None:
        return Finding(module, 'not installed', problem)
    kind = '' if len(stack.PACKAGES[module].distributions) == 1 else f' from {found[0]}'
    return Finding(module, found[1] + kind, problem)


def libraries() -> Finding:
    """The smaller libraries that mmlape and the MM packages import."""
    problem = stack.library_problem()
    return Finding('libraries', 'some are missing' if problem else 'all installed', problem)


def cuda() -> Finding:
    """The devices that torch sees. None is no problem: everything runs on the CPU too, slowly."""
    import torch

    built = torch.version.cuda
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Finding('CUDA', f'{built}: {len(names)} x {", ".join(dict.fromkeys(names))}', _cuda_problem())
    if not built:
        state = 'torch was built without it; training runs on the CPU'
        gpu_line = (
            f'{sys.executable} -m pip install --force-reinstall {stack.install_line("torch").split("install ")[1]}'
        )
        problem = Problem('there is an NVIDIA GPU that this torch cannot use', gpu_line) if _has_gpu() else None
        return Finding('CUDA', state, problem, needed=False)
    problem = None
    if _has_gpu():
        problem = Problem(
            f'there is an NVIDIA GPU, but its driver does not serve CUDA {built}',
            'nvidia-smi  # shows the driver and its CUDA version; install a driver for that version or newer',
        )
    return Finding('CUDA', f'{built}, no device: training runs on the CPU', problem, needed=False)


def _has_gpu() -> bool:
    """Return whether the kernel shows an NVIDIA GPU, which CUDA_VISIBLE_DEVICES does not hide."""
    return Path('/proc/driver/nvidia/gpus').is_dir() and os.environ.get('CUDA_VISIBLE_DEVICES') != ''


def _cuda_problem() -> Problem | None:
    """Return why a computation on the first device fails, or None."""
    import torch

    try:
        torch.ones(8, device='cuda').sum().item()
    except Exception as error:
        line = str(error).splitlines()[0]
        return Problem(f'a computation on the GPU fails: {line}', stack.install_line('torch'))
    return None


def ops(importable: bool) -> list[Finding]:
    """The compiled ops of mmcv, run on the CPU and, where there is a GPU, on CUDA."""
    if not importable:
        return [Finding('mmcv ops, CPU', 'unknown until torch and mmcv import', tried=False)]
    problem = stack.ops_problem()
    findings = [Finding('mmcv ops, CPU', 'missing or broken' if problem else 'run (NMS, RoIAlign)', problem)]
    if problem is None:
        problem = _try(lambda: _run_roi_align('cpu'), 'RoIAlign on the CPU', stack.install_line('mmcv'))
        findings = [Finding('mmcv ops, CPU', 'broken' if problem else 'run (NMS, RoIAlign)', problem)]
    import torch

    if not torch.cuda.is_available():
        return [*findings, Finding('mmcv ops, CUDA', 'not tried: no device', tried=False)]
    if findings[0].problem:
        return findings
    problem = _try(lambda: _run_roi_align('cuda'), 'RoIAlign on CUDA', stack.install_line('mmcv', cuda=True))
    return [*findings, Finding('mmcv ops, CUDA', 'missing or broken' if problem else 'run (NMS, RoIAlign)', problem)]


def _try(action: Callable[[], None], what: str, mend: str) -> Problem | None:
    """Run an action; return its failure as a problem."""
    try:
        action()
    except Exception as error:
        return Problem(f'{what} fails: {(str(error).splitlines() or [type(error).__name__])[0]}', mend)
    return None


def _run_roi_align(device: str) -> None:
    """Average a constant picture over a box, and suppress one of two equal boxes.

    Raises:
        RuntimeError: The op is missing, or returns something else than the constant.
    """
    import torch
    from mmcv.ops import nms, roi_align

    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0]], device=device)
    _, kept = nms(boxes, torch.tensor([0.9, 0.8], device=device), 0.5)
    picture = torch.full((1, 1, 8, 8), 3.0, device=device)
    pooled = roi_align(picture, torch.tensor([[0.0, 1.0, 1.0, 5.0, 5.0]], device=device), 2)
    if kept.tolist() != [0] or not torch.allclose(pooled, torch.full_like(pooled, 3.0)):
        raise RuntimeError('the result is wrong')


def deformops() -> Finding:
    """Deformable attention on CUDA without a compiler; has releases for some Pythons only, and stand-ins elsewhere."""
    name = 'deformops'
    line = next(line for line in stack.read_pins()['runtime'] if line.startswith(name))
    if stack.importable(name):
        try:
            importlib.import_module(name)
        except Exception as error:
            problem = Problem(f'deformops does not import: {error}', stack.library_line(name))
            return Finding(name, "does not import: mmcv's op stands in", problem, needed=False)
        return Finding(name, f'{version(name)}: Triton kernels on CUDA')
    if not stack.applies(line):
        state = f"has no release for Python {sys.version_info[0]}.{sys.version_info[1]}: mmcv's op stands in"
        return Finding(name, state, needed=False)
    problem = Problem('deformops is not installed: on CUDA, deformable attention is slower', stack.library_line(name))
    return Finding(name, "not installed: mmcv's op stands in", problem, needed=False)


def shared_memory() -> Finding:
    """/dev/shm, through which the loader's workers hand over their batches."""
    try:
        size = shutil.disk_usage('/dev/shm')
    except OSError:
        problem = Problem(
            'there is no /dev/shm: loaders with workers fail', 'mount -t tmpfs -o size=8G tmpfs /dev/shm'
        )
        return Finding('/dev/shm', 'missing', problem, needed=False)
    state = f'{size.free / 1e9:.1f} GB free of {size.total / 1e9:.1f} GB'
    if size.free / 1e9 >= SHM_GB:
        return Finding('/dev/shm', state)
    problem = Problem(
        f"/dev/shm has less than {SHM_GB:.0f} GB free: the loader's workers may die with a bus error",
        'mount -o remount,size=8G /dev/shm  # in Docker: docker run --shm-size=8g ...',
    )
    return Finding('/dev/shm', state, problem, needed=False)


def disk() -> Finding:
    """Room for checkpoints where the command was called."""
    free = shutil.disk_usage('.').free / 1e9
    state = f'{free:.0f} GB free in {os.getcwd()}'
    if free >= DISK_GB:
        return Finding('disk', state)
    problem = Problem(
        f'less than {DISK_GB:.0f} GB are free for checkpoints',
        'du -xh --max-depth=2 . | sort -h | tail  # shows what takes the room; or train with --work-dir elsewhere',
    )
    return Finding('disk', state, problem, needed=False)


def compiler() -> Finding:
    """The C++ compiler, which only the compilation of mmcv's ops needs."""
    path = shutil.which('g++') or shutil.which('c++')
    if path is None:
        problem = Problem("no C++ compiler: mmcv's ops cannot be compiled anew", 'apt-get install -y g++')
        return Finding('compiler', 'no g++', problem, needed=False)
    done = subprocess.run([path, '--version'], capture_output=True, text=True)
    nvcc = shutil.which('nvcc')
    return Finding('compiler', done.stdout.partition('\n')[0] + (f', nvcc at {nvcc}' if nvcc else ', no nvcc'))


def show(findings: list[Finding]) -> int:
    """Print the table, then every problem with the line that mends it.

    Returns:
        1 if something that training needs is missing, else 0.
    """
    _print_table(findings)
    for word, needed in (('problem', True), ('warning', False)):
        found = [f.problem for f in findings if f.problem and f.needed is needed]
        for problem in stack.merged(found):
            # printed plainly: a line to copy must not be wrapped
            print(f'{word}: {problem.what}\n    {problem.mend}')
    broken = any(f.problem and f.needed for f in findings)
    if broken and (line := stack.everything_line()):
        print(f'everything at once: {line}')
    print('training cannot run here' if broken else 'training can run here')
    return int(broken)


def _print_table(findings: list[Finding]) -> None:
    """Print the table; with plain columns where rich itself is missing."""
    rows = [('FAIL' if f.needed else 'warn') if f.problem else 'ok' if f.tried else '-' for f in findings]
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        for mark, finding in zip(rows, findings):
            print(f'{mark:<5}{finding.name:<16}{finding.state}')
        return
    colours = {'ok': 'green', '-': 'dim', 'warn': 'yellow', 'FAIL': 'bold red'}
    table = Table('', 'what', 'found', title='mmlape doctor', title_justify='left')
    for mark, finding in zip(rows, findings):
        table.add_row(Text(mark, colours[mark]), finding.name, Text(finding.state))
    Console(width=None if sys.stdout.isatty() else 110).print(table)
