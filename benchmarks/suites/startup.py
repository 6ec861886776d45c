"""Start-up: imports and help texts, each in a process of its own, beside a bare interpreter."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparison import Comparison, Settings, Side

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    'import mmlape': ['-c', 'import mmlape'],
    'mmlape --help': ['-m', 'mmlape', '--help'],
    'mmlape train --help': ['-m', 'mmlape', 'train', '--help'],
    'import torch': ['-c', 'import torch'],
    'import mmlape.models': ['-c', 'import mmlape.models'],
}


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one over all commands; torch's own import stands beside those that need it."""
    return [
        Comparison(
            suite='startup', case='start-up', work='a process from start to end', shape='-', dtype='-',
            sides=[Side(name, _side(argv)) for name, argv in {'python': ['-c', 'pass'], **COMMANDS}.items()],
            timed=False, counted=False,
        )
    ]  # fmt: skip


def _side(argv: list[str]) -> Callable:
    def build():
        return lambda: subprocess.run([sys.executable, *argv], check=True, capture_output=True, cwd=ROOT)

    return build
