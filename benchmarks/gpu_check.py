"""What only a GPU shows, in three scripts of four minutes each: `python -m benchmarks.gpu_check [options]`.

    make gpu-speed      speed, cost: how fast the models can be
    make gpu-run        run: what a user does by commands
    make gpu-values     values, training, compiling: whether all of it is right

Each line of the result is PASS, FAIL or NOT RUN with its figure. Each runs in a fork of its own, with a limit of its
own, so that an error that leaves CUDA unusable, a crash or a hang costs one line. Lines whose time is what is measured
run alone; others share the card, some at a time. A section that uses up its share of the time continues after the
others, and another call with ``--resume`` runs what has not passed.
"""

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checks import FAIL, NOT_RUN, PASS, SECTIONS, Check, Options, checks, line_of, not_installed, reason
from benchmarks.checks.stand_ins import lend_stand_ins
from benchmarks.machine import require_device
from benchmarks.results import add, now, summary, write
from mmlape.errors import ConfigError, MMLaPEError
from mmlape.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = {'speed': ('speed', 'cost'), 'run': ('run',), 'values': ('values', 'training', 'compiling')}
"""The sections of each script."""
SHARES = dict(speed=0.6, cost=0.4, run=1.0, values=0.5, training=0.3, compiling=0.2)
"""Of the time, by section."""
AT_ONCE = dict(values=8, training=4, compiling=2, run=6)
"""How many lines of a section share the card; the time of the others is what is measured."""
LIMIT = 100.0
"""Seconds after which one line counts as hanging."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    command = argparse.ArgumentParser('python -m benchmarks.gpu_check', description=__doc__.partition('\n')[0])
    add = command.add_argument
    add('--device', choices=('cuda', 'cpu'), default='cuda', help='default: %(default)s')
    add('--quick', action='store_true', help='small models and few rounds, as a trial: two minutes on two CPU cores')
    add('--script', choices=tuple(SCRIPTS), help='the sections of one script; default: all')
    add('--minutes', type=float, default=12.0, metavar='M', help='time for everything; default: %(default)g')
    add('--limit', type=float, default=LIMIT, metavar='S', help='seconds that one line may take; default: %(default)g')
    add('--only', nargs='+', choices=tuple(SECTIONS), metavar='SECTION', help=f'of {", ".join(SECTIONS)}')
    add('--site', metavar='FOLDER', help='what `make gpu-bundle` wrote, where OpenMMLab is not installed')
    add('--public', metavar='CHECKOUT', help='a checkout of the public ViT-Adapter code, to measure beside ours')
    add('--out', metavar='FOLDER', default='work_dirs/gpu-check', help='where results go; default: %(default)s')
    add('--resume', action='store_true', help='keep the lines in the folder that are PASS, and run others')
    return command


@dataclass
class Running:
    """A check in a fork; ``result`` is the file that it writes its line to."""

    check: Check
    process: int
    result: Path
    started: float


class Section:
    """A section's checks, without those of names that are ``finished``."""

    def __init__(self, name: str, options: Options, out: Path, finished: list[str], limit: float | None = None):
        self.name, self.options, self.log, self.finished = name, options, out / f'{name}.log', finished
        self.at_once = min(AT_ONCE.get(name, 1), len(os.sched_getaffinity(0)))
        self.limit = limit or LIMIT
        self.left: list[Check] | None = None  # once they are listed

    def run(self, share: float, seconds: float) -> Iterator[dict]:
        """Yield the lines of checks as they end.

        Args:
            share: Seconds in which lines are started.
            seconds: Seconds after which those that run are stopped.
        """
        started, running = time.monotonic(), []
        if self.left is None and share > 0:
            yield from self._list()
        try:
            while running or (self.left and time.monotonic() < started + share):
                while self.left and len(running) < self.at_once and time.monotonic() < started + share:
                    running.append(self._start(self.left.pop(0)))
                if time.monotonic() > started + seconds:
                    break
                for one in list(running):
                    line = self._ended(one)
                    if line:
                        running.remove(one)
                        yield self._line(line, time.monotonic() - one.started)
                time.sleep(0.02)
        finally:
            for one in running:
                _kill(one.process)
            if running:
                self.left[:0] = [one.check for one in running]

    def not_reached(self) -> list[dict]:
        """Return lines of the checks that are left."""
        names = [f'all of {self.name}'] if self.left is None else [check.name for check in self.left]
        return [self._line(dict(name=name, status=NOT_RUN, figure='no time was left'), 0) for name in names]

    def _list(self) -> Iterator[dict]:
        try:
            self.left = [check for check in checks(self.name, self.options) if check.name not in self.finished]
        except Exception as error:
            self.left, name = [], f'all of {self.name}'
            missing = isinstance(error, ModuleNotFoundError)
            yield self._line(
                not_installed(name, error) if missing else dict(name=name, status=FAIL, figure=reason(error)), 0
            )

    def _start(self, check: Check) -> Running:
        result = Path(self.options.scratch) / f'{self.name}-{len(self.left)}.json'
        result.unlink(missing_ok=True)

        def write() -> None:
            write_json(result, line_of(check))

        threads = max(1, len(os.sched_getaffinity(0)) // self.at_once)
        return Running(check, fork(write, self.log, threads), result, time.monotonic())

    def _ended(self, one: Running) -> dict | None:
        """Return the line of a check that has ended or hangs."""
        ended, status = os.waitpid(one.process, os.WNOHANG)
        if not ended and time.monotonic() - one.started < self.limit:
            return None
        if not ended:
            _kill(one.process)
            figure = f'no result after {self.limit:.0f} s: stopped'
        else:
            line = read_json(one.result)
            if line:
                return line
            figure = f'the process ended with {os.waitstatus_to_exitcode(status)}, see {self.log.name}'
        return dict(name=one.check.name, status=FAIL, figure=figure)

    def _line(self, line: dict, seconds: float) -> dict:
        return {'section': self.name, 'seconds': round(seconds, 2), 'values': {}, **line}


def fork(work: Callable[[], None], log: Path, threads: int) -> int:
    """Run something in a fork whose output goes to a log; returns its process.

    CUDA must not be in use here, since it does not survive a fork.
    """
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setsid()
        with log.open('a') as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        import torch

        torch.set_num_threads(threads)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _kill(process: int) -> None:
    """Kill a fork and all that it has started."""
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)


def describe(device: str, out: Path, scratch: str) -> dict:
    """Return commit, machine and versions, found in a fork: to ask the card is to use CUDA."""
    result = Path(scratch) / 'machine.json'

    def write() -> None:
        from benchmarks import machine

        found = dict(machine=machine.describe(device, None), versions=machine.versions())
        write_json(result, {'commit': machine.commit(), **found})

    os.waitpid(fork(write, out / 'machine.log', 1), 0)
    found = read_json(result)
    if found is None:
        raise ConfigError(f'the machine cannot be described, see {out / "machine.log"}')
    return found


def prepare(options: Options) -> None:
    """Set what forks inherit: the checkout and the bundle on the path, and cuBLAS as deterministic kernels want it."""
    paths = [str(ROOT), options.site, os.environ.get('PYTHONPATH')]
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
    os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'
    # on the CPU, oneDNN's kernels for AMX are wrong for some convolutions
    os.environ.setdefault('ONEDNN_MAX_CPU_ISA', 'AVX512_CORE_BF16')
    sys.path[:0] = [path for path in paths[:2] if path and path not in sys.path]
    if options.site:
        lend_stand_ins()


def run(args: argparse.Namespace, command: str) -> dict:
    """Run the checks, and write ``results.json`` and ``results.md`` after each line.

    Raises:
        ConfigError: No GPU, a folder that is none, or nothing of this machine to resume.
    """
    began, out = time.monotonic(), Path(args.out)
    _require(args)
    names = args.only or SCRIPTS.get(args.script) or tuple(SECTIONS)
    folders = {name: str(Path(value).resolve()) for name in ('site', 'public') if (value := getattr(args, name))}
    if args.resume and not (out / 'results.json').is_file():
        raise ConfigError(f'--resume: {out / "results.json"} does not exist: leave --resume out')
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        options = Options(args.device, args.quick, scratch=scratch, **folders)
        prepare(options)
        results = {
            'schema': 1, 'command': command, 'started': now(), 'finished': None, 'minutes': args.minutes,
            'quick': args.quick, **describe(args.device, out, scratch), 'lines': [],
        }  # fmt: skip
        if args.resume:
            earlier = _earlier(out / 'results.json', results)
            results['lines'] = [line for line in earlier if line['status'] == PASS or line['section'] not in names]
        finished: dict[str, list[str]] = {name: [] for name in SECTIONS}
        for line in results['lines']:
            finished[line['section']].append(line['name'])
        sections = [Section(name, options, out, finished[name], args.limit) for name in names]
        for section in sections:
            section.log.write_text('')
        total = 60 * args.minutes
        share = sum(SHARES[section.name] for section in sections)
        for last in (False, True):
            for section in sections:
                left = total - (time.monotonic() - began)
                for line in section.run(left if last else min(left, total * SHARES[section.name] / share), left):
                    add(results, line, out)
        for section in sections:
            for line in section.not_reached():
                add(results, line, out)
    results['finished'] = now()
    write(results, out)
    return results


def _require(args: argparse.Namespace) -> None:
    require_device(args.device)
    for name in ('site', 'public'):
        folder = getattr(args, name)
        if folder and not Path(folder).is_dir():
            raise ConfigError(f'--{name} {folder}: there is no such folder')


def _earlier(path: Path, results: dict) -> list[dict]:
    """Return the lines of an earlier call of the same code, machine and kind."""
    before = read_json(path)
    if before is None:
        raise ConfigError(f'--resume: {path} cannot be read: leave --resume out')
    other = [name for name in ('commit', 'quick', 'versions') if before[name] != results[name]]
    other += ['GPU'] if before['machine']['gpu'] != results['machine']['gpu'] else []
    if other:
        raise ConfigError(f'--resume: {path} was made with other {" and ".join(other)}: give another --out')
    return before['lines']


def main(argv: list[str]) -> int:
    """Run the command line; 1 if a line is FAIL."""
    os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'  # whether there is a GPU is asked without using it
    warnings.filterwarnings('ignore', category=DeprecationWarning)  # a fork beside threads of libraries, which sleep
    args = parser().parse_args(argv)
    try:
        results = run(args, shlex.join(['python', '-m', 'benchmarks.gpu_check', *argv]))
    except MMLaPEError as error:
        print(f'gpu_check: error: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f'gpu_check: interrupted; the results so far are in {args.out}', file=sys.stderr)
        return 130
    print(f'{summary(results)}; results: {Path(args.out) / "results.md"} and results.json')
    return int(any(line['status'] == FAIL for line in results['lines']))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
