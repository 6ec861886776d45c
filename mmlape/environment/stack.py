"""What of the stack (torch, the MM packages, mmcv's compiled ops) is installed, and the lines that install it.

Each MM package has two distributions with one import name: the maintained fork and the original. Either will do where
it imports. Nothing heavy is imported before it is asked for.
"""

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mmlape.environment.pins import MMCV_BUILD_ENV, PINS_FILE, pinned_version, read_pins
from mmlape.errors import StackError


@dataclass(frozen=True)
class Package:
    """A package of the stack: import name, distributions (the pinned one first), oldest version that works."""

    module: str
    distributions: tuple[str, ...]
    oldest: str


PACKAGES = {
    package.module: package
    for package in (
        Package('torch', ('torch',), '2.1'),
        Package('torchvision', ('torchvision',), '0.16'),
        Package('mmengine', ('onedl-mmengine', 'mmengine'), '0.10'),
        Package('mmcv', ('onedl-mmcv', 'mmcv'), '2.0'),
        Package('mmdet', ('onedl-mmdetection', 'mmdet'), '3.1'),
        Package('mmseg', ('onedl-mmsegmentation', 'mmsegmentation'), '1.1'),
        Package('mmpretrain', ('onedl-mmpretrain', 'mmpretrain'), '1.0'),
        Package('timm', ('timm',), '0.9'),
    )
}


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with the stack, and the line that mends it."""

    what: str
    mend: str

    def __str__(self) -> str:
        return f'{self.what}\n    to mend it: {self.mend}'


def importable(module: str) -> bool:
    """Return whether Python finds a module, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def installed(module: str) -> tuple[str, str] | None:
    """Return the distribution and the version of an installed package, without importing it, or None.

    A package that is on the path without having been installed (a checkout) has the version '?'.
    """
    if not importable(module):
        return None
    for name in PACKAGES[module].distributions:
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    return f'{module} (not installed, on the path only)', '?'


def install_line(module: str, cuda: bool = False) -> str:
    """Return the shell line that installs the pinned version of a package into the running environment.

    Args:
        module: Import name. mmcv is compiled with its ops.
        cuda: Compile mmcv's ops for CUDA too, which needs nvcc.
    """
    pip = f'{sys.executable} -m pip install'
    if module == 'mmcv':
        build = ' '.join(read_pins()['build'])
        env = {**MMCV_BUILD_ENV, **({'FORCE_CUDA': '1'} if cuda else {})}
        words = ' '.join(f'{name}="{value}"' if ' ' in value else f'{name}={value}' for name, value in env.items())
        flags = '--no-build-isolation --no-deps --no-cache-dir --force-reinstall -v'
        return f'{pip} {build} && {words} {pip} {flags} {_pin("mmcv")}'
    if module in ('torch', 'torchvision'):
        return f'{pip} {_pin("torch")} {_pin("torchvision")}'
    if module == 'mmdet':  # imports imaug, whose metadata ask for an old opencv
        return f'{pip} --no-deps {_pin("mmdet")} imaug=={pinned_version("imaug")}'
    if module == 'timm':
        return library_line('timm')
    return f'{pip} --no-deps {_pin(module)}'


def library_problem() -> Problem | None:
    """Return which of the libraries that mmlape and the MM packages import are not installed at all."""
    missing = []
    for line in read_pins()['runtime']:
        name, _, marker = (part.strip() for part in line.replace('==', ';', 1).partition(';'))
        marker = marker.partition(';')[2]
        if name in PACKAGES or name == 'deformops' or name in missing or (marker and not applies(marker)):
            continue
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if not importable('cv2'):
        missing.append('opencv-python-headless')
    if not missing:
        return None
    return Problem(f'not installed: {", ".join(missing)}', library_line(*missing))


def library_line(*names: str) -> str:
    """Return the shell line that installs the pinned versions of libraries."""
    return f'{sys.executable} -m pip install -c {PINS_FILE} {" ".join(names)}'


def applies(marker: str) -> bool:
    """Evaluate a marker of our pins: comparisons of `python_version` joined by `and`."""
    here = sys.version_info[:2]
    for operator, text in re.findall(r"python_version\s*(<|>=|==)\s*'([\d.]+)'", marker):
        there = tuple(int(n) for n in text.split('.'))
        if not {'<': here < there, '>=': here >= there, '==': here == there}[operator]:
            return False
    return True


def _pin(module: str) -> str:
    name = PACKAGES[module].distributions[0]
    return f'{name}=={pinned_version(name)}'


def _older(found: str, oldest: str) -> bool:
    """Compare the leading numbers of two versions."""
    numbers = [[int(n) for n in re.findall(r'\d+', text.partition('+')[0])[:3]] for text in (found, oldest)]
    return numbers[0] < numbers[1]


def presence_problem(module: str) -> Problem | None:
    """Return what is wrong with a package as far as its metadata tell, without importing it."""
    found = installed(module)
    if found is None:
        return Problem(f'{module} is not installed', install_line(module))
    oldest = PACKAGES[module].oldest
    if found[1] != '?' and _older(found[1], oldest):
        return Problem(f'{found[0]} {found[1]} is too old: mmlape needs {oldest} or newer', install_line(module))
    return None


def import_problem(module: str) -> Problem | None:
    """Return why a package does not import, or None; the import is real, and heavy."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return Problem(f'{module} does not import: {_first_line(error)}', _mend_import(module, error))
    return None


def _mend_import(module: str, error: Exception) -> str:
    """Return the line for a package that is there and does not import: mostly, something else is missing."""
    missing = getattr(error, 'name', None) or ''
    if isinstance(error, ModuleNotFoundError) and missing.partition('.')[0] not in (*PACKAGES, ''):
        names = {'cv2': 'opencv-python-headless', 'PIL': 'pillow', 'yaml': 'pyyaml', 'skimage': 'scikit-image'}
        name = names.get(missing, missing)
        return library_line(name)
    if missing.startswith('mmcv.'):
        return install_line('mmcv')
    if isinstance(error, ModuleNotFoundError) and missing in PACKAGES:
        return install_line(missing)
    return install_line(module)


def ops_problem() -> Problem | None:
    """Return why mmcv's compiled ops cannot be used on the CPU, or None. They are really run.

    The check runs NMS on three boxes, because an extension may load and still lack the operator.
    """
    try:
        import torch

        ext = importlib.import_module('mmcv._ext')
        boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.2], [8.0, 8.0, 9.0, 9.0]])
        kept = ext.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), iou_threshold=0.5, offset=0)
        if kept.tolist() != [0, 2]:
            return Problem(
                f"mmcv's compiled NMS keeps boxes {kept.tolist()} of a case that has [0, 2]", install_line('mmcv')
            )
    except ModuleNotFoundError as error:
        if (error.name or '').startswith('mmcv._ext'):
            return Problem("mmcv has no compiled ops ('mmcv._ext' is missing)", install_line('mmcv'))
        return Problem(f'mmcv does not import: {_first_line(error)}', _mend_import('mmcv', error))
    except Exception as error:
        return Problem(f"mmcv's compiled ops do not run: {_first_line(error)}", install_line('mmcv'))
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [''])[0] or type(error).__name__


def merged(problems: list[Problem]) -> list[Problem]:
    """Join problems that one line mends."""
    by_line: dict[str, list[str]] = {}
    for problem in problems:
        by_line.setdefault(problem.mend, []).append(problem.what)
    return [Problem('; '.join(whats), line) for line, whats in by_line.items()]


def everything_line() -> str | None:
    """Return the line that sets up the whole environment again, where this package is a checkout."""
    root = Path(__file__).resolve().parents[2]
    return f'make -B -C {root} setup' if (root / 'Makefile').exists() and (root / 'bootstrap').is_dir() else None


def require_stack(*modules: str, ops: bool = True) -> None:
    """Stop with one clear message unless the stack is there.

    Args:
        modules: Import names to require; torch, mmengine and mmcv in any case. Without names, the whole stack.
        ops: Require mmcv's compiled ops too, and run one.

    Raises:
        StackError: Names everything that is missing, too old or broken, each with the line that mends it.
    """
    wanted = dict.fromkeys(('torch', 'mmengine', 'mmcv', *modules)) if modules else PACKAGES
    found = [presence_problem(module) for module in wanted]
    if not any(found):
        found = [import_problem(module) for module in wanted if modules or module in ('torch', 'mmengine', 'mmcv')]
    if not any(found) and ops:
        found.append(ops_problem())
    problems = merged([problem for problem in found if problem])
    if problems:
        lines = [f'  {problem}' for problem in problems]
        if everything := everything_line():
            lines.append(f'  or everything at once: {everything}')
        raise StackError('\n'.join(['the stack cannot be used (`mmlape doctor` tells more):', *lines]))
