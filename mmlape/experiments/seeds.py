"""Trains one configuration over several seeds, each in a process and a work dir of its own, and averages the results.

<work dir>/<name of the configuration>/
    seed_121/ ...     one run each
    logs/seed_121.log what it printed
    recipe.json       the configuration that all runs here share
    summary.json      mean, standard deviation and n
"""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import mmlape
from mmlape.engine.config import config_name, load_config
from mmlape.engine.record import read_record, write_json
from mmlape.errors import ConfigError, TrainingError
from mmlape.experiments.aggregate import Run, read_run, read_seeds, write_summary
from mmlape.mim import mim_root

OWN_OPTIONS = ('--seed', '--work-dir', '--resume', '--launcher', '--cfg-options')
__all__ = ['Experiment', 'train_seeds', 'write_summary']
TAIL_LINES = 15
Say = Callable[[str], None]


@dataclass
class Experiment:
    """One configuration, to be trained with several seeds.

    Args:
        config: A configuration file, or ``mmlape::folder/name``.
        seeds: Different numbers.
        work_dir: The runs go to a folder below it, which is named as the configuration.
        gpus: Processes of one run; without GPUs they are CPU processes.
        cfg_options: ``key=value`` changes of the configuration.
        extra: Further options of ``mmlape train``.

    Raises:
        ConfigError: A seed is given twice, there is none, or ``extra`` holds what is set here.
    """

    config: str
    seeds: Sequence[int]
    work_dir: str | Path = 'work_dirs'
    gpus: int = 1
    cfg_options: Sequence[str] = ()
    extra: Sequence[str] = ()
    settings: dict = field(init=False, repr=False)
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        twice = sorted({seed for seed in self.seeds if list(self.seeds).count(seed) > 1})
        if twice or not self.seeds:
            raise ConfigError(f'--seeds: {twice} given twice' if twice else '--seeds: none given')
        taken = sorted({option.split('=')[0] for option in self.extra} & set(OWN_OPTIONS))
        if taken:
            raise ConfigError(f'{", ".join(taken)} after --: the run over seeds sets it itself')
        if self.gpus < 1:
            raise ConfigError(f'--gpus {self.gpus}: at least one process')
        cfg = load_config(self.config, list(self.cfg_options))
        self.settings = json.loads(json.dumps(cfg.to_dict(), default=str))
        self.folder = Path(self.work_dir) / config_name(cfg)

    def recipe(self) -> dict:
        """What the runs have in common, and its hash."""
        content = {'settings': self.settings, 'gpus': self.gpus, 'options': list(self.extra)}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return {'config': str(self.config), 'hash': digest, **content}

    def command(self, run: Run) -> list[str]:
        """The process that trains a run, or the rest of it."""
        options = ['--work-dir', str(run.folder), '--seed', str(run.seed), *self.extra]
        options += ['--resume'] if run.folder.exists() else []
        options += ['--cfg-options', *self.cfg_options] if self.cfg_options else []
        tools = mim_root() / 'tools'
        if self.gpus > 1:
            return ['bash', str(tools / 'dist_train.sh'), str(self.config), str(self.gpus), *options]
        return [sys.executable, str(tools / 'train.py'), str(self.config), *options]

    def log(self, run: Run) -> Path:
        """Where what a run prints goes."""
        return self.folder / 'logs' / f'seed_{run.seed}.log'


def train_seeds(experiment: Experiment, say: Say = print, every: float = 30.0) -> list[Run]:
    """Trains what is not finished yet. A run that fails does not stop the others.

    Args:
        experiment: What to train.
        say: Called with each line of progress.
        every: Seconds between two lines about one run.

    Returns:
        The runs as they are now, in the order of the seeds.

    Raises:
        TrainingError: The folder holds runs of another recipe, is in use, or cannot be written to.
        DataError: The folder of a seed holds another seed's run.
    """
    with _claimed(experiment) as lock:
        runs = read_seeds(experiment.folder, experiment.seeds)
        waiting = [run for run in runs if not run.finished]
        for run in runs:
            if run.finished:
                say(f'seed {run.seed}: finished before, skipped')
        pace: list[float] = []  # seconds that each run took which was trained here from its beginning
        for number, run in enumerate(waiting, start=1):
            left = len(waiting) - number
            again = 'resumed' if run.folder.exists() else 'started'
            say(f'seed {run.seed} ({number} of {len(waiting)}): {again}, {left} to go after it; {experiment.log(run)}')
            seconds, status = _train(experiment, run, lock, _reporter(run, left, pace, say, every))
            done = read_run(run.folder, run.seed)
            if done.finished:
                if again == 'started':
                    pace.append(seconds)
                say(f'seed {run.seed}: finished after {_clock(seconds)}{_outlook(pace, left)}')
            else:
                say(_failure(experiment, done, status))
        return read_seeds(experiment.folder, experiment.seeds)


@contextmanager
def _claimed(experiment: Experiment) -> Iterator[int]:
    """Keeps others out of the folder, and other recipes too.

    The lock belongs to this process and to the training that it starts, so that a training which outlives this
    process is not joined by a second one.
    """
    folder = experiment.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / '.lock', os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise TrainingError(f'cannot write into {folder} ({error.strerror}): give another --work-dir') from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise TrainingError(
            f'{folder} is in use: another run over seeds, or a training that one left behind'
        ) from error
    try:
        _check_recipe(experiment)
        yield lock
    finally:
        os.close(lock)


def _check_recipe(experiment: Experiment) -> None:
    """Makes sure that all runs of a folder are repeats of one recipe."""
    file, recipe = experiment.folder / 'recipe.json', experiment.recipe()
    if not file.exists():
        begun = [run.folder.name for run in read_seeds(experiment.folder) if run.state != 'missing']
        if begun:
            raise TrainingError(
                f'{experiment.folder} holds {", ".join(begun)}, but no recipe.json that says what they are runs of: '
                'move them away, or give another --work-dir'
            )
        write_json(file, recipe)
        return
    known = json.loads(file.read_text(encoding='utf-8'))
    if known['hash'] == recipe['hash']:
        return
    old, new = dict(_leaves(known)), dict(_leaves(recipe))
    changed = [
        key for key in dict.fromkeys([*old, *new]) if key not in ('hash', 'config') and old.get(key) != new.get(key)
    ]
    shown = '; '.join(f'{key.removeprefix("settings.")}: {old.get(key)} -> {new.get(key)}' for key in changed[:5])
    more = f' and {len(changed) - 5} more' if len(changed) > 5 else ''
    raise TrainingError(
        f'{experiment.folder} holds runs of another recipe ({shown}{more}): give another --work-dir, '
        'because runs of different recipes must not be averaged'
    )


def _leaves(node: Any, key: str = '') -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested dicts and lists."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else None
    if not children:
        yield key, node
        return
    for name, child in children:
        yield from _leaves(child, f'{key}.{name}' if key else str(name))


def _train(experiment: Experiment, run: Run, lock: int, tick: Callable[[float], None]) -> tuple[float, int]:
    """Trains one seed in a process of its own; returns the seconds that it took and its exit status."""
    log = experiment.log(run)
    log.parent.mkdir(exist_ok=True)
    package = str(Path(mmlape.__file__).resolve().parents[1])
    paths = [package, *filter(None, [os.environ.get('PYTHONPATH')])]
    environment = dict(os.environ, PYTHON=sys.executable, PYTHONUNBUFFERED='1', PYTHONPATH=os.pathsep.join(paths))
    command, begun = experiment.command(run), time.monotonic()
    with open(log, 'a', encoding='utf-8') as output:
        output.write(f'$ {" ".join(command)}\n')
        output.flush()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True, pass_fds=[lock]
        )
        try:
            while True:
                try:
                    process.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    tick(time.monotonic() - begun)
        except BaseException:
            _stop(process)
            raise
    return time.monotonic() - begun, process.returncode


def _stop(process: subprocess.Popen) -> None:
    """Ends a training with all its processes."""
    for number, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _reporter(run: Run, left: int, pace: list[float], say: Say, every: float) -> Callable[[float], None]:
    """A function that now and then says how far a run is."""
    said = 0.0

    def tick(seconds: float) -> None:
        nonlocal said
        if seconds - said < every:
            return
        said = seconds
        record = read_record(run.folder) or {}
        eta = record.get('eta')
        if record.get('state') != 'running' or not record.get('max_iters') or eta is None:
            say(f'seed {run.seed}: preparing, {_clock(seconds)} so far')
            return
        whole = pace or [seconds + eta]
        total = eta + left * sum(whole) / len(whole)
        say(
            f'seed {run.seed}: iteration {record.get("iter")} of {record["max_iters"]}, '
            f'about {_clock(eta)} to go; all seeds: about {_clock(total)}'
        )

    return tick


def _outlook(pace: list[float], left: int) -> str:
    return f'; {left} to go, about {_clock(left * sum(pace) / len(pace))}' if pace and left else ''


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _failure(experiment: Experiment, run: Run, status: int) -> str:
    log = experiment.log(run)
    lines = log.read_text(encoding='utf-8', errors='replace').splitlines()
    tail = '\n'.join(f'    {line}' for line in lines[-TAIL_LINES:])
    reason = f': {run.reason}' if run.reason else ''
    return f'seed {run.seed}: FAILED with exit status {status}{reason}\n  the end of {log}:\n{tail}'
