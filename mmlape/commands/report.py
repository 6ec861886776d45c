"""`mmlape report`: averages arms over their seeds, compares them, and writes the report in every usual format."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Average the finished runs of every arm below a work dir, compare the arms, and write a page (index.html), '
        'Markdown, LaTeX, CSV and JSON: means, deviations and 95 % intervals, differences with p and correction, '
        'curves, classes, cost and origin. Runs that do not count are listed; there are some if the status is 1.'
    )
    add = parser.add_argument
    add('work_dir', metavar='WORK_DIR', help='holds <arm>/seed_<s>, as `mmlape multi-seed` writes; or one arm')
    add('--arms', nargs='+', metavar='ARM', help='which, in this order; by default all')
    add(
        '--baseline',
        metavar='ARM',
        help='what the others are compared with; by default the default PE, model by model',
    )
    add('--metric', nargs='+', metavar='KEY', help="such as mIoU coco/bbox_mAP; by default the papers' metrics")
    add('--out', metavar='DIR', help='where the files go; by default WORK_DIR/report')
    add('--title', metavar='TEXT', help='by default the name of the work dir')
    add('--pictures', metavar='DIR', help='pictures to show; those in its sub-folders under the names of these')
    add(
        '--allow-different-software',
        action='store_true',
        help="average runs of one arm though this package's code or the stack changed between them",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the report and prints its table; 1 if a run does not count."""
    from pathlib import Path

    from rich.console import Console

    from mmlape.experiments.report import Arm, build, console_table, write_report
    from mmlape.runs.run import read_arms

    arms = [Arm(name, runs) for name, runs in read_arms(args.work_dir, args.arms).items()]
    _require_results(arms, args.work_dir)
    work_dir = Path(args.work_dir)
    out = Path(args.out) if args.out else work_dir / 'report'
    report = build(
        _with_metrics(arms, args.metric),
        args.title or work_dir.resolve().name,
        args.baseline,
        args.allow_different_software,
        pictures=_pictures(args.pictures, out) if args.pictures else {},
    )
    files = write_report(report, out)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(console_table(report))
    for line in report.excluded:
        print(f'not counted: {line}')
    for line in report.warnings:
        print(f'mind: {line}')
    print(f'wrote {files[0]}, and beside it {", ".join(file.name for file in files[1:])}')
    return 1 if report.excluded else 0


def _require_results(arms: list, work_dir: str) -> None:
    """Makes sure that there is something to average."""
    from mmlape.errors import DataError

    runs = [(arm, run) for arm in arms for run in arm.runs]
    if not any(run.counts for _, run in runs):
        states = '; '.join(f'{arm.name}, seed {run.seed}: {run.outcome}' for arm, run in runs)
        raise DataError(f'no run in {work_dir} has finished, so there is nothing to report: {states}')


def _with_metrics(arms: list, chosen: list[str] | None) -> list:
    """The arms, to be compared by these metrics as far as they have them."""
    from dataclasses import replace

    from mmlape.errors import ConfigError

    if not chosen:
        return arms
    known = {arm.name: {name for run in arm.runs if run.counts for name in run.last['metrics']} for arm in arms}
    every = sorted(set().union(*known.values()))
    unknown = [name for name in chosen if name not in every]
    if unknown:
        raise ConfigError(f'--metric {" ".join(unknown)}: no run has it; there are: {", ".join(every)}')
    return [replace(arm, metrics=tuple(name for name in chosen if name in known[arm.name])) for arm in arms]


def _pictures(folder: str, out) -> dict:
    """Captions and pictures of a folder; copied beside the report, so that this can be moved."""
    import shutil
    from pathlib import Path

    from mmlape.errors import DataError

    found = {}
    for file in sorted(Path(folder).rglob('*')):
        if file.suffix.lower() not in ('.png', '.jpg', '.jpeg', '.svg', '.webp', '.gif'):
            continue
        place = file.relative_to(folder)
        copy = out / 'pictures' / place
        if copy.resolve() != file.resolve():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        found.setdefault(' / '.join(place.parts[:-1]) or 'Pictures', []).append(copy)
    if not found:
        raise DataError(f'--pictures {folder}: no png, jpg, svg, webp or gif file there')
    return found
