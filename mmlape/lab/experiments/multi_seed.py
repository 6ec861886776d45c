"""Arms trained over seeds and averaged: what `mmlape multi-seed` does."""

import functools
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mmlape.console.quiet import say
from mmlape.console.tables import print_table, text_table
from mmlape.lab.config.config_file import load_config
from mmlape.lab.experiments.averages import DASH, SUMMARY, summarise, summary_table, write_summary
from mmlape.lab.experiments.launchers import Launcher, LocalLauncher
from mmlape.lab.experiments.planning import (
    PlannedRun,
    Study,
    processes_of,
    require_startable,
    run_arguments,
    train_options,
)
from mmlape.lab.experiments.report.arms import paper_figures
from mmlape.lab.experiments.scheduler import Scheduler
from mmlape.lab.experiments.until import UntilStudy, as_json, exit_status
from mmlape.lab.runs.run import read_seeds, seed_folder, write_order
from mmlape.lab.studies import Arm, is_study, read_arm
from mmlape.lab.training.optim import check_precision
from mmlape.openmmlab.mim import mim_root


def run_study(
    study: Study, launcher: Launcher, dry_run: bool = False, wait: bool = True, until: UntilStudy | None = None
) -> int:
    """Train what is not finished in a study, and average every arm; without ``wait`` only start it.

    Returns:
        1 if a run is refused in a dry run, or does not count in the averages; else 0. With ``until``, which starts
        seeds only while their comparison is undecided, that of `until.exit_status`.
    """
    if isinstance(launcher, LocalLauncher):
        check_precision(study.options.amp)
    plan = study.plan()
    for warning in study.warnings():
        print(f'warning: {warning}', flush=True)
    if dry_run:
        print_plan(plan, launcher)
        for line in (*_missing_files(plan), *launcher.preview(plan)):
            say(line)
        return 1 if any(planned.action == 'refuse' for planned in plan) else 0
    require_startable(plan)
    print(launcher.describe(), flush=True)
    if until:
        return _run_until(until, plan, launcher)
    study.write_plan()
    Scheduler(plan, launcher, functools.partial(print, flush=True)).run(wait)
    if not wait:
        return 0
    return average_arms(study.arms, study.work_dir, study.seeds, study.options.allow_different_software)


def _run_until(until: UntilStudy, plan: Sequence[PlannedRun], launcher: Launcher) -> int:
    """Start seeds while an arm is undecided, print each look, and return the exit status of the decisions."""
    until.fix()
    write_order(until.work_dir, [until.baseline, *until.arms])
    told, undecided = set[str](), set[str]()

    def look(_: PlannedRun | None = None) -> None:
        verdicts = until.verdicts()
        for verdict in verdicts:
            if verdict.looks and str(verdict) not in told:
                told.add(str(verdict))
                print(verdict, flush=True)
        undecided.clear()
        # what waits for a finished run without a result waits for its user
        held = {verdict.arm for verdict in verdicts if verdict.held and verdict.held.finished}
        undecided.update(verdict.arm for verdict in verdicts if not verdict.decision and verdict.arm not in held)

    def is_wanted(planned: PlannedRun) -> bool:
        """Return whether a seed may count: its arm is undecided, and none before it has failed here."""
        place = until.seeds.index(planned.run.seed)
        failed = {one.arm.name for one in scheduler.failed if until.seeds.index(one.run.seed) < place}
        arms = set() if until.baseline in failed else undecided - failed
        return bool(arms) if planned.arm.name == until.baseline else planned.arm.name in arms

    look()
    log = functools.partial(print, flush=True)
    scheduler = Scheduler(plan, launcher, log, on_finished=look, is_wanted=is_wanted)
    scheduler.run()
    verdicts = until.verdicts()
    for verdict in verdicts:
        print(f'verdict: {verdict}')
    print(as_json(verdicts))
    return exit_status(verdicts)


def _missing_files(plan: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield each file that runs start from, and each root of their data, that is not there, with how many runs."""
    weights = [(path, 'from which {} would start') for planned in plan for _, path in planned.missing]
    data = [(path, 'whose data {} would read') for planned in plan for path in planned.missing_data]
    for (path, use), count in Counter([*weights, *data]).items():
        runs = f'{count} run{"s" * (count > 1)}'
        yield f'missing: {path}, {use.format(runs)}'


def show_arms(
    arms: Sequence[Arm], work_dir: str | Path, seeds: Sequence[int], extra: Sequence[str], processes: int = 1
) -> None:
    """Print what the arms of studies are, and the command that trains each arm with its first seed alone.

    Nothing needs to be there for it: neither weights nor data nor a batch that fits.
    """
    if any(is_study(arm.config) for arm in arms):
        print_arms(arms)
    for arm in arms:
        args = run_arguments(arm, seed_folder(Path(work_dir) / arm.name, seeds[0]), seeds[0], extra)
        print(f'{arm.name}: {shlex.join(_command(arm, args, processes))}')


def _command(arm: Arm, args: Sequence[str], processes: int) -> list[str]:
    """Return the command that trains a run: in as many processes as the recipe has, if none are given."""
    options = train_options(args[1:])
    if processes == 1 and options.batch is None:
        processes = processes_of(load_config(arm.config, list(arm.cfg_options)))
    if processes == 1:
        return ['mmlape', 'train', *args]
    tool = (mim_root() / 'tools' / 'dist_train.sh').resolve()
    if tool.is_relative_to(Path.cwd()):
        tool = tool.relative_to(Path.cwd())
    return ['bash', str(tool), args[0], str(processes), *args[1:]]


def print_arms(arms: Sequence[Arm]) -> None:
    """Print what the arms of studies change, with the paper's figures."""
    rows = []
    for arm in arms:
        base, changes, figure = arm.config, list(arm.cfg_options), ''
        if is_study(arm.config):
            planned = read_arm(arm.config)
            base = Path(planned.base).stem
            changes = [*(f'{key}={value}' for key, value in planned.overrides.items()), *changes]
            printed = [f'{value} {metric}' for metric, value in paper_figures(planned).items()]
            if printed:
                printed[0] = f'{printed[0]}, {planned.study.paper}, {planned.study.table}'.rstrip(', ')
            if planned.relative_to:
                printed[0] += f', relative to {planned.relative_to}'
            figure = '\n'.join(printed)
        rows.append((arm.name, base, '\n'.join(changes), figure or DASH))
    print_table(text_table(('arm', 'base', 'overrides', "paper's figure"), rows, 4))


def print_plan(plan: Sequence[PlannedRun], launcher: Launcher) -> None:
    """Print what would be done."""
    rows = []
    for planned in plan:
        job = launcher.adopt(planned) if planned.action in ('start', 'resume') else None
        action, reason = ('watch', job.place) if job else (planned.action, planned.reason)
        rows.append((planned.arm.name, planned.run.seed, planned.run.state, action, reason))
    print_table(text_table(('arm', 'seed', 'state', 'to be done', 'reason'), rows, 5), launcher.describe())


def average_arms(arms: Sequence[Arm], work_dir: str | Path, seeds: Sequence[int], allow_software: bool = False) -> int:
    """Average every arm below a work dir over its seeds, print and write the results; return 1 if a run is missing."""
    complete = [_average_arm(arm, Path(work_dir) / arm.name, seeds, allow_software) for arm in arms]
    if len(arms) > 1:
        print(f'compare the arms: mmlape report {shlex.quote(str(work_dir))}')
    return 0 if all(complete) else 1


def _average_arm(arm: Arm, folder: Path, seeds: Sequence[int], allow_software: bool) -> bool:
    """Average one arm; return whether all its runs count."""
    runs = read_seeds(folder, seeds)
    if not any(run.finished for run in runs):
        print(f'no finished run in {folder}: nothing to average', file=sys.stderr)
        return False
    write_summary(folder, runs, arm.config, allow_software)
    summary = summarise(runs, allow_software, in_points=True)
    title = f'{arm.name}, seeds {", ".join(map(str, summary.seeds))}'
    print_table(summary_table(summary), title)
    for seed, outcome in summary.unfinished.items():
        say(f'not counted: seed {seed}, {outcome}')
    others = [run.seed for run in read_seeds(folder) if run.finished and run.seed not in summary.seeds]
    if others:
        print(f'finished but not requested, not counted: seeds {", ".join(map(str, others))}')
    print(f'wrote {folder / SUMMARY}')
    return not summary.unfinished
