"""Check what training needs, by running it where that is possible; works without torch or any MM package."""

import importlib
import os
import platform
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from mmlape.environment import stack
from mmlape.environment.install import applies, everything_line, install_line, library_line
from mmlape.environment.packages import PACKAGES, SAFE_TORCH, importable, installed
from mmlape.environment.pins import read_pins
from mmlape.environment.stack import StackProblem

SHM_GB = 1.0
DISK_GB = 5.0


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
        name: What was checked.
        state: What was found.
        problem: What is wrong with it, or None.
        needed: Whether training is impossible without it; a problem then makes the exit status 1.
        tried: False where it could not be checked.
    """

    name: str
    state: str
    problem: StackProblem | None = None
    needed: bool = True
    tried: bool = True


def examine() -> list[Check]:
    """Check Python, torch, CUDA, the MM packages, the compiled ops, deformops, memory, disk and compiler."""
    checks = [python()]
    packages = {module: package(module) for module in PACKAGES}
    checks.append(libraries())
    checks.extend(packages.values())
    torch_runs = packages['torch'].problem is None
    checks.extend(reading())
    checks.append(cuda() if torch_runs else Check('CUDA', 'unknown without torch', tried=False))
    checks.extend(ops(torch_runs and packages['mmcv'].problem is None))
    checks.extend([deformops(), shared_memory(), disk(), compiler()])
    return checks


def python() -> Check:
    """Return the interpreter; one older than 3.10 does not get here."""
    return Check('Python', f'{platform.python_version()} ({sys.executable})')


def package(module: str) -> Check:
    """Check a package of the stack: which distribution, which version, and whether it imports."""
    found = installed(module)
    problem = stack.presence_problem(module)
    if problem is None:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            problem = stack.import_problem(module)
    if found is None:
        return Check(module, 'not installed', problem)
    kind = '' if len(PACKAGES[module].distributions) == 1 else f' from {found[0]}'
    return Check(module, found[1] + kind, problem)


def libraries() -> Check:
    """Check the smaller libraries that mmlape and the MM packages import."""
    problem = stack.library_problem()
    return Check('libraries', 'some are missing' if problem else 'all installed', problem)


def reading() -> list[Check]:
    """Check that torch has no known way in for a malicious checkpoint, where torch is installed."""
    found = installed('torch')
    if found is None or not stack.is_older(found[1], SAFE_TORCH):
        return []
    what = (
        f'with torch before {SAFE_TORCH} a malicious checkpoint can corrupt memory: read files of known authors only'
    )
    state = f'less safe with torch {found[1]} (CVE-2026-24747)'
    return [Check('checkpoints', state, StackProblem(what, install_line('torch')), needed=False)]


def cuda() -> Check:
    """Check the devices that torch sees; without one, everything runs on the CPU, slowly."""
    import torch

    built = torch.version.cuda
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check('CUDA', f'{built}: {len(names)} x {", ".join(dict.fromkeys(names))}', _cuda_problem())
    if built:
        state, what = f'{built}, no device', f'there is an NVIDIA GPU, but its driver does not serve CUDA {built}'
        line = 'nvidia-smi  # shows the driver and its CUDA version; install a driver for that version or newer'
    else:
        state, what = 'torch was built without it', 'there is an NVIDIA GPU that this torch cannot use'
        line = install_line('torch').replace('pip install', 'pip install --force-reinstall')
    problem = StackProblem(what, line) if _has_gpu() else None
    return Check('CUDA', f'{state}: training runs on the CPU', problem, needed=False)


def _has_gpu() -> bool:
    """Return whether the kernel shows an NVIDIA GPU, which CUDA_VISIBLE_DEVICES does not hide."""
    return Path('/proc/driver/nvidia/gpus').is_dir() and os.environ.get('CUDA_VISIBLE_DEVICES') != ''


def _cuda_problem() -> StackProblem | None:
    """Return why a computation on the first device fails, or None."""
    import torch

    try:
        torch.ones(8, device='cuda').sum().item()
    except Exception as error:
        return StackProblem(f'a computation on the GPU fails: {stack.first_line(error)}', install_line('torch'))
    return None


def ops(imports: bool) -> list[Check]:
    """Check mmcv's compiled ops by running them on the CPU and, where there is a GPU, on CUDA."""
    if not imports:
        return [Check('mmcv ops, CPU', 'unknown until torch and mmcv import', tried=False)]
    import torch

    problem = stack.ops_problem() or _roi_align_problem('cpu')
    found = [Check('mmcv ops, CPU', 'missing or broken' if problem else 'run (NMS, RoIAlign)', problem)]
    if not torch.cuda.is_available():
        return [*found, Check('mmcv ops, CUDA', 'not tried: no device', tried=False)]
    if problem:
        return found
    problem = _roi_align_problem('cuda')
    return [*found, Check('mmcv ops, CUDA', 'missing or broken' if problem else 'run (NMS, RoIAlign)', problem)]


def _roi_align_problem(device: str) -> StackProblem | None:
    """Return why the ops do not run on a device, or None."""
    try:
        _run_roi_align(device)
    except Exception as error:
        line = install_line('mmcv', cuda=device == 'cuda')
        return StackProblem(f'RoIAlign on {device.upper()} fails: {stack.first_line(error)}', line)
    return None


def _run_roi_align(device: str) -> None:
    """Average a constant image over a box, and suppress one of two equal boxes.

    Raises:
        RuntimeError: The op is missing, or returns something else than the constant.
    """
    import torch
    from mmcv.ops import nms, roi_align

    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0]], device=device)
    _, kept = nms(boxes, torch.tensor([0.9, 0.8], device=device), 0.5)
    image = torch.full((1, 1, 8, 8), 3.0, device=device)
    pooled = roi_align(image, torch.tensor([[0.0, 1.0, 1.0, 5.0, 5.0]], device=device), 2)
    if kept.tolist() != [0] or not torch.allclose(pooled, torch.full_like(pooled, 3.0)):
        raise RuntimeError('the result is wrong')


def deformops() -> Check:
    """Check deformable attention's Triton kernels, which have releases for some versions of Python only."""
    name = 'deformops'
    line = next(line for line in read_pins()['runtime'] if line.startswith(name))
    if importable(name):
        try:
            importlib.import_module(name)
        except Exception as error:
            problem = StackProblem(f'deformops does not import: {error}', library_line(name))
            return Check(name, "does not import: mmcv's op stands in", problem, needed=False)
        return Check(name, f'{version(name)}: Triton kernels on CUDA')
    if not applies(line):
        state = f"has no release for Python {sys.version_info[0]}.{sys.version_info[1]}: mmcv's op stands in"
        return Check(name, state, needed=False)
    problem = StackProblem('deformops is not installed: on CUDA, deformable attention is slower', library_line(name))
    return Check(name, "not installed: mmcv's op stands in", problem, needed=False)


def shared_memory() -> Check:
    """Check /dev/shm, through which the data loader's workers hand over their batches."""
    try:
        size = shutil.disk_usage('/dev/shm')
    except OSError:
        problem = StackProblem(
            'there is no /dev/shm: loaders with workers fail', 'mount -t tmpfs -o size=8G tmpfs /dev/shm'
        )
        return Check('/dev/shm', 'missing', problem, needed=False)
    state = f'{size.free / 1e9:.1f} GB free of {size.total / 1e9:.1f} GB'
    if size.free / 1e9 >= SHM_GB:
        return Check('/dev/shm', state)
    problem = StackProblem(
        f"/dev/shm has less than {SHM_GB:.0f} GB free: the loader's workers may die with a bus error",
        'mount -o remount,size=8G /dev/shm  # in Docker: docker run --shm-size=8g ...',
    )
    return Check('/dev/shm', state, problem, needed=False)


def disk() -> Check:
    """Check the room for checkpoints in the current folder."""
    free = shutil.disk_usage('.').free / 1e9
    state = f'{free:.0f} GB free in {os.getcwd()}'
    if free >= DISK_GB:
        return Check('disk', state)
    problem = StackProblem(
        f'less than {DISK_GB:.0f} GB are free for checkpoints',
        'du -xh --max-depth=2 . | sort -h | tail  # shows what takes the room; or train with --work-dir elsewhere',
    )
    return Check('disk', state, problem, needed=False)


def compiler() -> Check:
    """Check the C++ compiler, which only the compilation of mmcv's ops needs."""
    path = shutil.which('g++') or shutil.which('c++')
    if path is None:
        problem = StackProblem("no C++ compiler: mmcv's ops cannot be compiled again", 'apt-get install -y g++')
        return Check('compiler', 'no g++', problem, needed=False)
    done = subprocess.run([path, '--version'], capture_output=True, text=True)
    nvcc = shutil.which('nvcc')
    return Check('compiler', done.stdout.partition('\n')[0] + (f', nvcc at {nvcc}' if nvcc else ', no nvcc'))


def show(checks: list[Check]) -> int:
    """Print the table, then every problem with the line that fixes it.

    Returns:
        1 if something that training needs is missing, else 0.
    """
    _print_table(checks)
    for kind, needed in (('problem', True), ('warning', False)):
        found = [check.problem for check in checks if check.problem and check.needed is needed]
        for problem in stack.merged(found):
            # printed plainly: a line to copy must not be wrapped
            print(f'{kind}: {problem.what}\n    {problem.fix}')
    broken = any(check.problem and check.needed for check in checks)
    if broken and (line := everything_line()):
        print(f'everything at once: {line}')
    print('training cannot run here' if broken else 'training can run here')
    return int(broken)


def _mark(check: Check) -> str:
    if check.problem:
        return 'FAIL' if check.needed else 'warn'
    return 'ok' if check.tried else '-'


def _print_table(checks: list[Check]) -> None:
    """Print the table, with plain columns where rich itself is missing."""
    marks = [_mark(check) for check in checks]
    try:
        from rich.table import Table
        from rich.text import Text

        from mmlape.console import console
    except ImportError:
        for mark, check in zip(marks, checks):
            print(f'{mark:<5}{check.name:<16}{check.state}')
        return
    colours = {'ok': 'green', '-': 'dim', 'warn': 'yellow', 'FAIL': 'bold red'}
    table = Table('', 'what', 'found', title='mmlape doctor', title_justify='left')
    for mark, check in zip(marks, checks):
        table.add_row(Text(mark, colours[mark]), check.name, Text(check.state))
    console().print(table)
