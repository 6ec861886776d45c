"""What only a GPU shows, as far as ten minutes go: `python -m benchmarks.gpu_check [options]`.

Each line of the result is PASS, FAIL or NOT RUN with its figure. The sections run one after the other, each in a child
process, so that an error that leaves CUDA unusable, a crash or a hang costs one line: a new child resumes behind it.
A section that uses up its share of the time continues after the others, and another call with ``--resume`` runs what
has not passed.
"""

import argparse
import dataclasses
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.checks import FAIL, NOT_RUN, PASS, SECTIONS, Options
from mmlape.errors import ConfigError, MMLaPEError
from mmlape.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[1]
SHARES = dict(values=0.35, training=0.22, compiling=0.13, cost=0.25, loading=0.05)
"""Of the time, by section."""
LIMIT = 150.0
"""Seconds after which one check counts as hanging."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    command = argparse.ArgumentParser('python -m benchmarks.gpu_check', description=__doc__.partition('\n')[0])
    add = command.add_argument
    add('--device', choices=('cuda', 'cpu'), default='cuda', help='default: %(default)s')
    add('--quick', action='store_true', help='small models and few rounds, as a trial: two minutes on two CPU cores')
    add('--minutes', type=float, default=10.0, metavar='M', help='time for everything; default: %(default)g')
    add('--only', nargs='+', choices=tuple(SECTIONS), metavar='SECTION', help=f'of {", ".join(SECTIONS)}')
    add('--site', metavar='FOLDER', help='what `make gpu-bundle` wrote, where OpenMMLab is not installed')
    add('--public', metavar='CHECKOUT', help='a checkout of the public ViT-Adapter code, to measure beside ours')
    add('--out', metavar='FOLDER', default='work_dirs/gpu-check', help='where results go; default: %(default)s')
    add('--resume', action='store_true', help='keep the lines in the folder that are PASS, and run others')
    return command


class Section:
    """A section's checks, without those of names that are ``finished``."""

    def __init__(self, name: str, options: Options, out: Path, finished: Iterable[str] = ()):
        self.name, self.options, self.log = name, options, out / f'{name}.log'
        self.finished = list(finished)
        self.names: list[str] | None = None  # of the checks that are left, once a child has listed them

    def run(self, seconds: float):
        """Yield the lines of checks until all are done or the time is up."""
        stop = time.monotonic() + seconds
        while not self.done and time.monotonic() < stop:
            yield from self._child(stop)

    @property
    def done(self) -> bool:
        """Whether no check is left."""
        return self.names == []

    def left(self) -> list[dict]:
        """Return lines of the checks that are not done."""
        names = [f'all of {self.name}'] if self.names is None else self.names
        return [self._line(dict(name=name, status=NOT_RUN, figure='no time was left')) for name in names]

    def _child(self, stop: float):
        """Run a child until it ends, hangs or the time is up; the check at which it dies has failed."""
        options = json.dumps(dataclasses.asdict(self.options))
        command = [sys.executable, '-m', 'benchmarks.checks', self.name, options, json.dumps(self.finished)]
        with self.log.open('a') as log:
            child = subprocess.Popen(
                command, cwd=ROOT, env=environment(self.options), text=True, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        messages: queue.Queue = queue.Queue()
        threading.Thread(target=_forward, args=(child.stdout, messages), daemon=True).start()
        begun = time.monotonic()
        running = answered = False
        try:
            while not self.done:
                message = messages.get(timeout=max(0.1, min(stop, begun + LIMIT) - time.monotonic()))
                if message is None:  # the child has ended
                    child.wait()
                    if running or not answered:
                        figure = f'the process ended with {child.returncode}, see {self.log.name}'
                        yield self._finish(dict(name=self._current(), status=FAIL, figure=figure), begun)
                    return
                if 'nothing' in message:
                    self.names, answered = [], True
                    yield self._line(message['nothing'])
                elif 'names' in message:
                    self.names = message['names']
                elif 'start' in message:
                    begun, running = time.monotonic(), True
                elif 'line' in message:
                    running, answered = False, True
                    yield self._finish(message['line'], begun)
        except queue.Empty:
            if time.monotonic() < stop:
                figure = f'no result after {LIMIT:.0f} s: stopped'
                yield self._finish(dict(name=self._current(), status=FAIL, figure=figure), begun)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _current(self) -> str:
        return self.names[0] if self.names else f'all of {self.name}'

    def _finish(self, line: dict, begun: float) -> dict:
        self.finished += (self.names or [])[:1]
        self.names = (self.names or [])[1:]
        return self._line({'seconds': round(time.monotonic() - begun, 2), **line})

    def _line(self, line: dict) -> dict:
        return {'section': self.name, 'seconds': 0.0, 'values': {}, **line}


def _forward(stream, messages: queue.Queue) -> None:
    for text in stream:
        messages.put(json.loads(text))
    messages.put(None)


def environment(options: Options) -> dict[str, str]:
    """Return a child's variables: the checkout and the bundle on its path; cuBLAS as deterministic kernels want it."""
    paths = [str(ROOT), options.site, os.environ.get('PYTHONPATH')]
    return {
        **os.environ,
        'PYTHONPATH': os.pathsep.join(filter(None, paths)),
        'CUBLAS_WORKSPACE_CONFIG': ':4096:8',
        'PYTHONUNBUFFERED': '1',
    }


def run(args: argparse.Namespace, command: str) -> dict:
    """Run the checks, and write ``results.json`` and ``results.md`` after each line.

    Raises:
        ConfigError: No GPU, a folder that is none, no time, or nothing of this machine to resume.
    """
    from benchmarks import machine

    out = Path(args.out)
    _require(args)
    results = {
        'schema': 1, 'command': command, 'started': _now(), 'finished': None, 'minutes': args.minutes,
        'commit': machine.commit(), 'quick': args.quick, 'machine': machine.describe(args.device, None),
        'versions': machine.versions(), 'lines': [],
    }  # fmt: skip
    names = args.only or list(SECTIONS)
    if args.resume:
        earlier = _earlier(out / 'results.json', results)
        results['lines'] = [line for line in earlier if line['status'] == PASS or line['section'] not in names]
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: str(Path(value).resolve()) for name in ('site', 'public') if (value := getattr(args, name))}
        options = Options(args.device, args.quick, scratch=scratch, **folders)
        finished: dict[str, list[str]] = {name: [] for name in SECTIONS}
        for line in results['lines']:
            finished[line['section']].append(line['name'])
        sections = [Section(name, options, out, finished[name]) for name in names]
        for section in sections:
            section.log.write_text('')
        total = 60 * args.minutes
        share = sum(SHARES[section.name] for section in sections)
        for last in (False, True):
            for section in sections:
                left = total - (time.monotonic() - began)
                for line in section.run(left if last else min(left, total * SHARES[section.name] / share)):
                    _add(results, line, out)
        for section in sections:
            for line in section.left():
                _add(results, line, out)
    results['finished'] = _now()
    _write(results, out)
    return results


def _require(args: argparse.Namespace) -> None:
    if args.device == 'cuda':
        import torch

        if not torch.cuda.is_available():
            raise ConfigError('torch sees no GPU here; --device cpu --quick is a trial without one')
    for name in ('site', 'public'):
        folder = getattr(args, name)
        if folder and not Path(folder).is_dir():
            raise ConfigError(f'--{name} {folder}: there is no such folder')
    if args.minutes <= 0:
        raise ConfigError(f'--minutes {args.minutes:g}: give a time above 0')
    if Path(args.out).exists() and not Path(args.out).is_dir():
        raise ConfigError(f'--out {args.out} is a file: name a folder')


def _earlier(path: Path, results: dict) -> list[dict]:
    """Return the lines of an earlier call of the same code, machine and kind."""
    before = read_json(path)
    if before is None:
        raise ConfigError(f'--resume: {path} does not exist or cannot be read: leave --resume out')
    then, now = (
        {'commit': one.get('commit'), 'use of --quick': one.get('quick'), 'GPU': one['machine']['gpu']}
        | one['versions']
        for one in (before, results)
    )
    other = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    if other:
        raise ConfigError(f'--resume: {path} was made with another {" and ".join(other)}: give another --out')
    return before['lines']


def _add(results: dict, line: dict, out: Path) -> None:
    results['lines'].append(line)
    print(
        f'{line["status"]:8}{line["seconds"]:6.1f} s  {line["section"]}: {line["name"]}: {line["figure"]}', flush=True
    )
    _write(results, out)


def _write(results: dict, out: Path) -> None:
    write_json(out / 'results.json', results)
    (out / 'results.md').write_text(markdown(results), encoding='utf-8')


def summary(results: dict) -> str:
    """Return how many lines have which status."""
    counts = Counter(line['status'] for line in results['lines'])
    return ', '.join(f'{counts[status]} {status}' for status in (PASS, FAIL, NOT_RUN))


def markdown(results: dict) -> str:
    """Return the page of the results: the machine, then a table for each section, what has failed first."""
    machine = results['machine']
    versions = ', '.join(f'{name} {number}' for name, number in results['versions'].items())
    gpu = ', '.join(filter(None, (machine['gpu'] or 'no GPU', machine['gpu_details'])))
    host = f'{machine["processor"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB'
    ended = f'ended {results["finished"]}' if results['finished'] else 'not finished'
    lines = [
        f'# {machine["gpu"] or "no GPU"}: {summary(results)}',
        '',
        f'- machine: {gpu}; {host}; {machine["system"]}; load at the start {machine["load"]}',
        f'- versions: {versions}',
        f'- command: `{results["command"]}`',
        f'- started {results["started"]}, {ended}',
    ]
    for section, about in SECTIONS.items():
        found = [line for line in results['lines'] if line['section'] == section]
        if found:
            lines += [
                '',
                f'## {section}: {about}',
                '',
                '| check | result | figure | s |',
                '| --- | --- | --- | ---: |',
            ]
            found.sort(key=lambda line: line['status'] != FAIL)
            lines += [f'| {_row(line)} | {line["seconds"]:.1f} |' for line in found]
    return '\n'.join(lines) + '\n'


def _row(line: dict) -> str:
    return ' | '.join(line[key].replace('|', '\\|') for key in ('name', 'status', 'figure'))


def _now() -> str:
    return time.strftime('%Y-%m-%dT%H:%M:%S')


def main(argv: list[str]) -> int:
    """Run the command line; 1 if a line is FAIL."""
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
