"""The command line: `python -m benchmarks SUITE... [options]`, and `... submit FILE`."""

import argparse
import dataclasses
import itertools
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.suites import SUITES
from mmlape.errors import MMLaPEError

MEMORY = 'memory'


def parser() -> argparse.ArgumentParser:
    """Return the parser of a measurement's options."""
    about = {**SUITES, MEMORY: 'peak memory of the suites named beside it; alone, of all, without their times'}
    listed = '\n'.join(f'  {name.ljust(11)} {text}' for name, text in about.items())
    command = argparse.ArgumentParser(
        'python -m benchmarks',
        description='Measure speed and memory side by side.',
        epilog=f'suites (all: every one of them):\n{listed}\n\n'
        'python -m benchmarks submit FILE makes the record of a run, to be sent to us.',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add('suites', nargs='+', choices=(*about, 'all'), metavar='SUITE', help='what to measure')
    add('--device', choices=('cpu', 'cuda'), default='cpu')
    add('--dtype', nargs='+', choices=('fp32', 'bf16', 'fp16'), help='default: fp32, and bf16 too on a GPU')
    add('--sizes', nargs='+', type=int, metavar='S', help='sides of images, multiples of 32; default: 224 512')
    add('--arch', choices=('deit-tiny', 'deit-small', 'deit-base', 'mini'), default='deit-tiny')
    add('--batch', type=int, metavar='B', help='images per step; default: what fits the device and the size')
    add('--quick', action='store_true', help='three short rounds of little work, as a trial')
    add('--threads', type=int, metavar='N', help="torch's threads; default: its own choice")
    add('--vit-adapter', metavar='DIR', help='a checkout of the public ViT-Adapter code, to measure as well')
    add('--out', metavar='DIR', default='work_dirs/benchmarks', help='where the results go; default: %(default)s')
    return command


def checks_of(args: argparse.Namespace) -> Iterator[tuple]:
    """Yield what is measured: the suite, and its check."""
    from benchmarks.checks import Check
    from benchmarks.comparison import Settings
    from benchmarks.measure import measure, measure_memory
    from benchmarks.suites import comparisons

    everything = 'all' in args.suites
    suites = [name for name in SUITES if everything or name in args.suites]
    of_memory = everything or MEMORY in args.suites
    repeats, budget = (3, 0.5) if args.quick else (20, 3.0)
    dtypes = args.dtype or (('fp32', 'bf16') if args.device == 'cuda' else ('fp32',))
    for suite, size, dtype in itertools.product(suites or SUITES, args.sizes or (224, 512), dtypes):
        settings = Settings(args.device, dtype, size, args.arch, args.batch, repeats, budget, args.vit_adapter)
        compared = [dataclasses.replace(one, goals={}) for one in comparisons(suite, settings)]  # those of a GPU
        if suites:
            yield from ((suite, Check(one.name, partial(measure, one, settings))) for one in compared)
        if of_memory:
            for one in compared:
                if one.memory:
                    yield MEMORY, Check(one.name, partial(measure_memory, suite, one, settings))


def measure_all(args: argparse.Namespace, command: str) -> Path:
    """Measure, and write the results after each comparison, so that an interrupted run keeps its results."""
    from benchmarks import machine
    from benchmarks.checks import line_of
    from benchmarks.results import add, now, write

    machine.require_device(args.device)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    results = {
        'schema': 1, 'command': command, 'started': now(), 'finished': None, 'commit': machine.commit(),
        'machine': machine.describe(args.device, args.threads), 'versions': machine.versions(), 'lines': [],
    }  # fmt: skip
    for suite, check in checks_of(args):
        started = time.monotonic()
        line = line_of(check)
        add(results, {'section': suite, 'seconds': round(time.monotonic() - started, 2), 'values': {}, **line}, out)
    results['finished'] = now()
    write(results, out)
    return out / 'results.md'


def main(argv: list[str]) -> int:
    """Run the command line; a line that fails is no failure of the command."""
    warnings.filterwarnings('ignore')
    try:
        if argv[:1] == ['submit']:
            from benchmarks.records import submit

            submit(argv[1:])
        else:
            page = measure_all(parser().parse_args(argv), shlex.join(['python', '-m', 'benchmarks', *argv]))
            print(f'results: {page}')
    except MMLaPEError as error:
        print(f'benchmarks: error: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('benchmarks: interrupted; the results so far are kept', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
