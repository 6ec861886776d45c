"""The command line: `python -m benchmarks SUITE... [options]`, `... compare A.json B.json`, and `... submit FILE`."""

import argparse
import contextlib
import dataclasses
import shlex
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

from benchmarks import report
from benchmarks.suites import SUITES
from mmlape.errors import ConfigError, MMLaPEError

QUICK = dict(repeats=3, budget=0.5)


def parser() -> argparse.ArgumentParser:
    """Return the parser of a measurement's options."""
    listed = '\n'.join(f'  {name.ljust(11)} {about}' for name, about in SUITES.items())
    command = argparse.ArgumentParser(
        'python -m benchmarks',
        description='Measure speed and memory side by side. Nothing passes or fails.',
        epilog=f'suites (all: every one of them):\n{listed}\n\n'
        'python -m benchmarks compare A.json B.json sets one result file against another.\n'
        'python -m benchmarks submit FILE makes the record of a run, to be sent to us.',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add('suites', nargs='+', choices=(*SUITES, 'all'), metavar='SUITE', help='what to measure')
    add('--device', choices=('cpu', 'cuda'), default='cpu')
    add('--dtype', nargs='+', choices=('fp32', 'bf16', 'fp16'), help='default: fp32, and bf16 too on a GPU')
    add(
        '--sizes',
        nargs='+',
        type=_positive,
        metavar='S',
        help='sides of the images; default: 224 512, and 1024 on a GPU',
    )
    add('--arch', choices=('deit-tiny', 'deit-small', 'deit-base', 'deit-large', 'mini'), default='deit-tiny')
    add('--batch', type=_positive, metavar='B', help='images per step; default: what fits the device and the size')
    add('--repeats', type=_positive, metavar='N', help='rounds at most; default: 20; an interval needs nine')
    add('--budget', type=float, metavar='SECONDS', help='per comparison, after nine rounds; default: 3')
    add('--quick', action='store_true', help='three short rounds of little work, as a trial')
    add('--threads', type=_positive, metavar='N', help="torch's threads; default: its own choice")
    add('--data', metavar='DIR', help='the mini data; default: data/mini, made if it is not there')
    add('--vit-adapter', metavar='DIR', help='a checkout of the public ViT-Adapter code, to measure as well')
    add('--lape', metavar='DIR', help='a checkout of the public LaPE code, to measure as well')
    add('--irpe', metavar='DIR', help="Cream's iRPE/DeiT-with-iRPE, to measure as well")
    add('--dinov3', metavar='DIR', help='a checkout of the public DINOv3 code, to measure as well')
    add('--t2t', metavar='DIR', help='a checkout of the public T2T-ViT code, to measure as well')
    add('--ceit', metavar='DIR', help='a checkout of the public CeiT code, to measure as well')
    add('--compact', metavar='DIR', help='a checkout of the public Compact-Transformers code, to measure as well')
    add('--out', metavar='DIR', default='work_dirs/benchmarks', help='where the results go; default: %(default)s')
    return command


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text} is not a positive number')
    return int(text)


def settings_of(args: argparse.Namespace):
    """Return the settings of the options."""
    from benchmarks.comparison import Settings

    gpu = args.device == 'cuda'
    limits = QUICK if args.quick else {}
    chosen = {name: getattr(args, name) for name in ('repeats', 'budget') if getattr(args, name) is not None}
    public = ('vit-adapter', 'lape', 'dinov3', 't2t', 'ceit', 'compact', 'irpe')
    named = {name: getattr(args, name.replace('-', '_')) for name in public}
    return Settings(
        device=args.device,
        dtypes=tuple(args.dtype or (('fp32', 'bf16') if gpu else ('fp32',))),
        sizes=tuple(args.sizes or ((224, 512, 1024) if gpu else (224, 512))),
        arch=args.arch,
        batch=args.batch,
        quick=args.quick,
        data=args.data,
        checkouts={name: path for name, path in named.items() if path},
        **{**limits, **chosen},
    )


def measure_all(args: argparse.Namespace, command: str) -> Path:
    """Measure, and write the results after each comparison, so that an interrupted run keeps its results."""
    from benchmarks import floor, machine
    from benchmarks.measure import measure, measure_memory
    from benchmarks.suites import comparisons

    with contextlib.suppress(ImportError):  # of an environment without OpenMMLab
        from mmengine.logging import MMLogger

        MMLogger.get_instance('mmengine').setLevel('ERROR')
    settings = settings_of(args)
    if settings.device == 'cuda':
        require_cuda()
    suites = list(SUITES) if 'all' in args.suites else list(dict.fromkeys(args.suites))
    require_folder(args.out)
    results = {
        'schema': 1, 'command': command, 'started': _now(), 'finished': None,
        'machine': machine.describe(settings.device, args.threads), 'versions': machine.versions(),
        'options': dataclasses.asdict(settings), 'rates': {}, 'results': [],
    }  # fmt: skip
    for dtype in settings.dtypes:
        results['rates'][f'{settings.device} {dtype}'] = floor.rates(settings.device, dtype, settings.quick)
    todo = [(suite, comparison) for suite in suites for comparison in comparisons(suite, settings)]
    timed_too = [one for one in todo if one[0] != 'memory' or one[1].suite in suites]
    if len({suite for suite, _ in timed_too}) == len(suites):  # the memory of what is named beside it
        todo = timed_too
    started, out = time.monotonic(), Path(args.out)
    for done, (suite, comparison) in enumerate(todo):
        passed = time.monotonic() - started
        left = f', about {_clock(passed / done * (len(todo) - done))} left' if done else ''
        print(f'[{done + 1}/{len(todo)}, {_clock(passed)}{left}] {suite}: {comparison.key}', flush=True)
        if suite == 'memory':
            result = measure_memory(comparison, settings)
        else:
            rates = results['rates'].get(f'{settings.device} {comparison.dtype}') if comparison.timed else None
            result = measure(comparison, settings, rates)
        results['results'].append(result)
        _print(result)
        save(results, out)
    results['finished'] = _now()
    return save(results, out)


def require_cuda() -> None:
    """Stop where there is no GPU.

    Raises:
        ConfigError: Torch sees none.
    """
    import torch

    if not torch.cuda.is_available():
        raise ConfigError('--device cuda: torch sees no GPU here; measure the CPU with --device cpu')


def require_folder(folder: str) -> None:
    """Make the folder of the results before anything is measured.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f'--out {folder}: {error.strerror}') from error


def save(results: dict, folder: Path) -> Path:
    """Write ``results.json`` and ``results.md``.

    Returns:
        The page.
    """
    from mmlape.files import write_json

    write_json(folder / 'results.json', results)
    page = folder / 'results.md'
    page.write_text(report.markdown(results), encoding='utf-8')
    return page


def _print(result: dict) -> None:
    factor, unit = (1e3, 'ms') if result['unit'] == 's' else (1, result['unit'])
    ratios = {found['side']: f' ({found["value"]:.3f})' for found in result['ratios']}
    parts = [
        f'{side["name"]} {side["median"] * factor:.4g} {unit}{ratios.get(side["name"], "")}'
        for side in result['sides']
    ]
    parts += [f'{name} did not run: {why}' for name, why in result['failed'].items()]
    print(f'    {", ".join(parts)}' + (f'; {result["note"]}' if result['note'] else ''), flush=True)


def run_compare(argv: list[str]) -> None:
    """Print a table of two result files."""
    command = argparse.ArgumentParser('python -m benchmarks compare')
    command.add_argument('first', metavar='A.json')
    command.add_argument('second', metavar='B.json')
    args = command.parse_args(argv)
    rows, remarks = report.compare(report.read(args.first), report.read(args.second))
    print('| what | side | first | second | second / first [95 %] |\n| --- | --- | --- | --- | --- |')
    for row in rows:
        key = row['key'].replace(' | ', ', ')
        medians = ' | '.join(f'{row[name]:.4g} {row["unit"]}' for name in ('first', 'second'))
        print(f'| {key} | {row["side"]} | {medians} | {report.interval(row)} |')
    print('\n'.join(['', *remarks]))


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _now() -> str:
    return time.strftime('%Y-%m-%dT%H:%M:%S')


def main(argv: list[str]) -> int:
    warnings.filterwarnings('ignore')
    try:
        if argv[:1] == ['compare']:
            run_compare(argv[1:])
        elif argv[:1] == ['submit']:
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
