"""Training throughput of our trainer beside MMEngine's runner on the same configuration, in processes of their own."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.memory import ROOT
from benchmarks.suites.loading import mini_data

CONFIG = 'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py'
RUNNERS = ('MMSegmentation', 'mmlape')


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one: Segmenter of the mini recipe on the mini data, from random weights."""
    iterations = 8 if settings.quick else 60

    def side(runner: str) -> Callable:
        def build():
            mini_data(settings)
            return lambda: seconds_per_iteration(settings, runner, iterations)

        return build

    return [
        Comparison(
            suite='trainer', case=f"{CONFIG.split('/')[1].split('_1xb')[0]}: our trainer against MMSegmentation's",
            work='an iteration of training', shape=f'{iterations} iterations', dtype='fp32',
            sides=[Side(name, side(name)) for name in RUNNERS], items=16, timed=False, counted=False, reports=True,
            note='mean of the iterations after the fifth, data loading and hooks included; new processes each round',
        )
    ]  # fmt: skip


def seconds_per_iteration(settings: Settings, runner: str, iterations: int) -> float:
    """Train in a new process, and return what it measured."""
    chosen = json.dumps(dataclasses.asdict(settings))
    command = [sys.executable, '-m', 'benchmarks.training', runner, str(iterations), chosen]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise RuntimeError(f'ended with {done.returncode}: {" ".join(done.stderr.strip().splitlines()[-1:])}')
    return float(done.stdout.strip().splitlines()[-1])
