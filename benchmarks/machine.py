"""What was measured on: processor, memory, GPU, versions of the stack."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mmlape.errors import ConfigError
from mmlape.lab.environment import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
OTHERS = ('triton', 'deformops', 'numpy', 'transformers', 'mmlape')


def require_device(device: str) -> None:
    """Stop where there is no GPU.

    Raises:
        ConfigError: Torch sees none.
    """
    import torch

    if device == 'cuda' and not torch.cuda.is_available():
        raise ConfigError('torch sees no GPU here: measure the CPU with --device cpu, --quick for a trial')


def describe(device: str, threads: int | None) -> dict:
    """Describe the machine: processor, cores, memory, load, operating system and GPU.

    Args:
        device: 'cpu' or 'cuda'.
        threads: torch's threads; None leaves torch's own choice.
    """
    import torch

    if threads:
        torch.set_num_threads(threads)
    return {
        'processor': processor(),
        'cores': len(os.sched_getaffinity(0)),
        'threads': torch.get_num_threads(),
        'memory_gib': round(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1),
        'load': round(os.getloadavg()[0], 2),
        'system': platform.platform(),
        'device': device,
        'gpu': torch.cuda.get_device_name() if device == 'cuda' else None,
        'gpu_details': _gpu_details() if device == 'cuda' else '',
        'cuda': torch.version.cuda if device == 'cuda' else None,
    }


def _gpu_details() -> str:
    """Return memory and compute capability of the GPU."""
    import torch

    found = torch.cuda.get_device_properties()
    return f'{found.total_memory / 2**30:.0f} GiB, sm_{found.major}{found.minor}'


def processor() -> str:
    """The model name that Linux gives, else what Python knows."""
    path = Path('/proc/cpuinfo')
    lines = path.read_text().splitlines() if path.is_file() else []
    fields = dict(line.split(':', 1) for line in lines if ':' in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    name = named.get('model name') or platform.processor() or 'unknown'
    model = ', '.join(f'{key} {named[key]}' for key in ('cpu family', 'model') if key in named)
    return f'{name} ({model})' if model else name


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    found = {'python': platform.python_version()}
    stack = [name for package in PACKAGES.values() for name in package.distributions]
    for package in (*stack, *OTHERS):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the commit of this checkout, with a plus if its files were changed; 'unknown' outside git."""

    def git(*words: str) -> str:
        done = subprocess.run(['git', '-C', str(ROOT), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git('rev-parse', 'HEAD') + ('+' if git('status', '--porcelain', '--untracked-files=no') else '')
    except (OSError, subprocess.SubprocessError):
        return 'unknown'
