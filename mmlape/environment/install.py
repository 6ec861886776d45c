"""Shell lines that install what is missing, at the pinned versions; standard library only."""

import re
import sys
from pathlib import Path

from mmlape.environment.packages import PACKAGES
from mmlape.environment.pins import MMCV_BUILD_ENV, PINS_FILE, pinned_version, read_pins


def install_line(module: str, cuda: bool = False) -> str:
    """Return the shell line that installs the pinned version of a package into the running environment.

    Args:
        module: Import name. mmcv is compiled with its ops.
        cuda: Compile mmcv's ops for CUDA too, which needs nvcc.
    """
    pip = f'{sys.executable} -m pip install'
    if module == 'mmcv':
        env = {**MMCV_BUILD_ENV, **({'FORCE_CUDA': '1'} if cuda else {})}
        variables = ' '.join(f'{name}="{value}"' if ' ' in value else f'{name}={value}' for name, value in env.items())
        flags = '--no-build-isolation --no-deps --no-cache-dir --force-reinstall -v'
        return f'{pip} {" ".join(read_pins()["build"])} && {variables} {pip} {flags} {_pin("mmcv")}'
    if module in ('torch', 'torchvision'):
        return f'{pip} {_pin("torch")} {_pin("torchvision")}'
    if module == 'mmdet':  # imports imaug, whose metadata ask for an old opencv
        return f'{pip} --no-deps {_pin("mmdet")} imaug=={pinned_version("imaug")}'
    return library_line('timm') if module == 'timm' else f'{pip} --no-deps {_pin(module)}'


def library_line(*names: str) -> str:
    """Return the shell line that installs the pinned versions of libraries."""
    return f'{sys.executable} -m pip install -c {PINS_FILE} {" ".join(names)}'


def everything_line() -> str | None:
    """Return the line that sets up the complete environment again, where this package is a checkout."""
    root = Path(__file__).resolve().parents[2]
    return f'make -B -C {root} setup' if (root / 'Makefile').exists() and (root / 'bootstrap').is_dir() else None


def applies(marker: str) -> bool:
    """Evaluate a marker of the pins: comparisons of `python_version` joined by `and`."""
    here = sys.version_info[:2]
    for operator, text in re.findall(r"python_version\s*(<|>=|==)\s*'([\d.]+)'", marker):
        there = tuple(int(n) for n in text.split('.'))
        if not {'<': here < there, '>=': here >= there, '==': here == there}[operator]:
            return False
    return True


def _pin(module: str) -> str:
    name = PACKAGES[module].distributions[0]
    return f'{name}=={pinned_version(name)}'
