"""The checks of `python -m benchmarks.gpu_check`, in sections; each module lists its own, the most valuable first.

A check is a name and a function that returns what it `Found`. Whatever it raises is a FAIL, but for a package that is
not installed, which is NOT RUN with the package's name; so no check lists what it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

SECTIONS = {
    'speed': 'eager, compiled layers, CUDA graphs',
    'run': 'what a user does: train, kill and resume, seeds, test, predict, export',
    'values': 'values and gradients against float64 on the CPU',
    'training': 'twenty training steps',
    'compiling': 'torch.compile',
    'cost': 'time and memory',
}
PASS, FAIL, NOT_RUN = 'PASS', 'FAIL', 'NOT RUN'


@dataclass
class Options:
    """What the command line asks for.

    Attributes:
        device: 'cuda' or 'cpu'.
        quick: Whether the work is small: fewer models, smaller ones, fewer rounds.
        site: A folder of packages, see `benchmarks.bundle`.
        public: A checkout of the public ViT-Adapter code.
        scratch: A folder for generated files.
    """

    device: str = 'cuda'
    quick: bool = False
    site: str | None = None
    public: str | None = None
    scratch: str = '.'


@dataclass
class Found:
    """What a check found.

    Attributes:
        ok: Whether it passes.
        figure: The figure, in a few words.
        values: The numbers behind it, for the JSON file.
    """

    ok: bool
    figure: str
    values: dict = field(default_factory=dict)


@dataclass
class Check:
    """One line of the result."""

    name: str
    run: Callable[[], Found]


class NotRunError(Exception):
    """A check cannot run here; the message is the reason."""


def checks(section: str, options: Options) -> list[Check]:
    """Return the checks of a section."""
    return import_module(f'benchmarks.checks.{section}').checks(options)


def line_of(check: Check) -> dict:
    """Run a check, and return its line: 'name', 'status', 'figure' and 'values'."""
    try:
        found = check.run()
    except NotRunError as error:
        return _line(check, NOT_RUN, str(error))
    except ModuleNotFoundError as error:
        return not_installed(check.name, error)
    except Exception as error:
        return _line(check, FAIL, reason(error))
    return {**_line(check, PASS if found.ok else FAIL, found.figure), 'values': found.values}


def not_installed(name: str, error: ModuleNotFoundError) -> dict:
    """Return the line of a check for which a package is not installed; a module of our own that is missing fails."""
    package = (error.name or str(error)).partition('.')[0]
    own = package in ('mmlape', 'benchmarks')
    return dict(name=name, status=FAIL if own else NOT_RUN, figure=reason(error) if own else f'needs {package}')


def reason(error: BaseException) -> str:
    """Return the kind and the first line of an error."""
    lines = str(error).strip().splitlines()
    return f'{type(error).__name__}: {lines[0] if lines else ""}'[:300]


def _line(check: Check, status: str, figure: str) -> dict:
    return dict(name=check.name, status=status, figure=figure)
