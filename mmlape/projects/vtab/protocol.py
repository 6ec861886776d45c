"""VTAB-1k: a pretrained model fine-tuned on 19 small sets (arXiv:1910.04867), as the Dual PatchNorm paper does it.

Every learning rate is trained with every seed; the rate of the best mean validation accuracy is
tested. The runs are a study (`mmlape.lab.experiments.planning`), so the scheduler starts, watches and
resumes them. A test accuracy is kept beside its run, with the hash of the list of images; nothing
is tested twice.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
from mmengine.config import Config

from mmlape.console import console
from mmlape.errors import DataError
from mmlape.files import atomic_path, parse_json, write_json
from mmlape.lab.datasets.sources import read_lines
from mmlape.lab.engine.evaluator import test
from mmlape.lab.engine.optim import check_precision, quiet_logger
from mmlape.lab.experiments.averages import (
    DASH,
    Average,
    average_values,
    interval,
    mean_std_n,
    number,
    summarise,
)
from mmlape.lab.experiments.launchers import Launcher, LocalLauncher
from mmlape.lab.experiments.multi_seed import plan_table
from mmlape.lab.experiments.planning import Arm, PlannedRun, Study
from mmlape.lab.experiments.scheduler import Progress, Scheduler
from mmlape.lab.experiments.statistics import INTERVAL
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.runs.run import Run, read_seeds
from mmlape.projects.vtab.sets import VtabSet, VtabSets
from mmlape.tables import markdown_table, text_table, write_csv

METRIC = 'accuracy/top1'
RATES = (3e-4, 1e-3, 3e-3)
"""The paper's listing shows the first; the others are ours."""


@dataclass(frozen=True)
class Options:
    """How the sets are trained."""

    rates: Sequence[float]  # learning rates to choose among, each with all seeds
    seeds: Sequence[int]
    # 800, or 1000 to train the chosen rate once more with the images of validation
    images: int = 800
    work_dir: Path = Path('work_dirs/vtab')  # receives ``<set>-lr<rate>/seed_<S>``
    processes: int = 1
    extra: Sequence[str] = ()  # further options of ``mmlape train``
    prune: bool = False  # whether to delete the checkpoints of the other rates once a set is tested

    def study(self, arms: Sequence[Arm]) -> Study:
        """Return the study of some arms."""
        with quiet_logger():
            return Study(arms, self.seeds, self.work_dir, self.processes, self.extra)

    def runs(self, arm: Arm) -> list[Run]:
        """Return the runs of an arm."""
        return read_seeds(self.work_dir / arm.name, self.seeds)


@dataclass(frozen=True, eq=False)
class SetResult:
    """What the runs of a set have given."""

    vtab_set: VtabSet
    validation: dict[float, Average]  # of the last evaluation, by rate
    rate: float | None = None  # the chosen one; None while runs are missing
    test: Average | None = None  # the test accuracy; None before the tests
    # why there is no rate or no test accuracy; else what is to be said about the choice
    reason: str = ''


def run_sets(
    sets: Sequence[VtabSet],
    options: Options,
    launcher: Launcher,
    dry_run: bool = False,
    wait: bool = True,
) -> list[SetResult]:
    """Train what is not finished, choose the rates, and test.

    Empty after a dry run or without waiting.

    Raises:
        ConfigError: The precision is not supported here, or options do not fit each other.
        TrainingError: See `Scheduler.run`.
    """
    study = options.study([entry.arm(rate) for entry in sets for rate in options.rates])
    if isinstance(launcher, LocalLauncher):
        check_precision(study.options.amp)
    plan = _set_by_set(study)
    if dry_run:
        console().print(plan_table(plan, launcher))
        return []
    log = functools.partial(print, flush=True)
    log(launcher.describe())
    study.write_plan()
    Scheduler(plan, launcher, log).run(wait)
    if not wait:
        return []
    results = [choose(entry, options, study.options.allow_different_software) for entry in sets]
    chosen = [
        result.vtab_set.arm(result.rate, 1000) for result in results if result.rate is not None
    ]
    if options.images == 1000 and chosen:
        log(f'once more on 1000 images: {len(chosen)} sets x {len(options.seeds)} seeds')
        study = options.study(chosen)
        study.write_plan()
        Scheduler(_set_by_set(study), launcher, log).run()
    return evaluate(results, study, options, log)


def _set_by_set(study: Study) -> list[PlannedRun]:
    """Plan a study so that one set is finished before the next is begun."""
    order = [arm.name.rpartition('-lr')[0] for arm in study.arms]
    return sorted(
        study.plan(), key=lambda planned: order.index(planned.arm.name.rpartition('-lr')[0])
    )


def choose(vtab_set: VtabSet, options: Options, allow_software: bool = False) -> SetResult:
    """Choose the rate of the best mean validation accuracy over all seeds, the lower one of equals.

    A rate with a run that diverged cannot be chosen. While a run of another rate is missing, none
    is.
    """
    complete, diverged, missing = {}, [], []
    for rate in sorted(options.rates):
        summary = summarise(options.runs(vtab_set.arm(rate)), allow_software)
        entry = summary.last.metrics.get(METRIC)
        if entry and entry.n == len(options.seeds):
            complete[rate] = entry
        elif any(outcome.startswith('diverged') for outcome in summary.unfinished.values()):
            diverged.append(f'lr {rate:g} diverged')
        else:
            lines = [f'seed {seed}: {outcome}' for seed, outcome in summary.unfinished.items()]
            missing.append(f'lr {rate:g}: {"; ".join(lines)}')
    if missing or not complete:
        return SetResult(vtab_set, complete, reason='; '.join([*missing, *diverged]))
    best = max(complete, key=lambda rate: complete[rate].mean)  # the first of equals
    return SetResult(vtab_set, complete, best, reason='; '.join(diverged))


def evaluate(
    results: Sequence[SetResult], study: Study, options: Options, log: Callable[[str], None]
) -> list[SetResult]:
    """Evaluate the final checkpoints of the chosen rates on the test splits.

    ``study`` has their arms.
    """
    runs = {
        result: options.runs(result.vtab_set.arm(result.rate, options.images))
        for result in results
        if result.rate is not None
    }
    images = {result: len(read_lines(str(result.vtab_set.test_list))) for result in runs}
    progress = Progress(
        sum(images[result] * len(set_runs) for result, set_runs in runs.items()), log
    )
    evaluated = []
    for result in results:
        unfinished = [
            f'seed {run.seed}: {run.outcome}' for run in runs.get(result, ()) if not run.counts
        ]
        if result.rate is None or unfinished:
            evaluated.append(
                replace(result, reason='; '.join(filter(None, [result.reason, *unfinished])))
            )
            continue
        values = {}
        for run in runs[result]:
            value = _tested(run, result.vtab_set.test_list)
            if value is None:
                value = _test(run, study.configs[run.arm], result.vtab_set.test_list)
                progress.finish(images[result])
                progress.log(f'{run.arm}, seed {run.seed}: test {value:.2f}')
            else:
                progress.skip(images[result])
            values[run.seed] = {METRIC: value}
        evaluated.append(replace(result, test=average_values(values)[METRIC]))
        if options.prune:
            _prune(result, options)
    return evaluated


def _tested(run: Run, listed: Path) -> float | None:
    """Return the test accuracy of a run, if it was measured on this very list."""
    folder = run.folder / 'test'
    stamp = folder / 'list.sha256'
    if not stamp.is_file() or stamp.read_text() != _digest(listed):
        return None
    return parse_json((folder / 'metrics.json').read_text())['metrics'][METRIC]


def _test(run: Run, cfg: Config, listed: Path) -> float:
    final = next(iter(checkpoints(run.folder)), None)
    if final is None or final.stem.rpartition('_')[2] != str(run.record.get('max_iters')):
        raise DataError(
            f'{run.folder} has no checkpoint of iteration {run.record.get("max_iters")}, so it cannot '
            'be tested: remove the folder to train it again'
        )
    cfg = cfg.copy()
    cfg.log_level, cfg.visualizer = 'ERROR', None
    with quiet_logger():
        metrics = test(cfg, final, run.folder / 'test', show=False)['metrics']
    (run.folder / 'test' / 'list.sha256').write_text(_digest(listed))
    return metrics[METRIC]


def _digest(listed: Path) -> str:
    return hashlib.sha256(listed.read_bytes()).hexdigest()


def _prune(result: SetResult, options: Options) -> None:
    """Delete the checkpoints of the rates that were not chosen; their records stay."""
    for rate in options.rates:
        if rate == result.rate:
            continue
        for run in options.runs(result.vtab_set.arm(rate)):
            for path in checkpoints(run.folder):
                path.unlink()


@dataclass(frozen=True)
class Mean:
    """The mean over the sets of a group, or over 'all'."""

    name: str
    sets: tuple[str, ...]
    left_out: tuple[str, ...]  # the sets of the group that it is not over
    test: Average | None  # of the mean test accuracy by seed; None without a set
    # the mean of the paper's figures over the same sets; None if one of them has none
    paper: float | None

    @property
    def title(self) -> str:
        """Its name, and over how many sets: 'natural, 6 of 7 sets'."""
        return f'{self.name}, {len(self.sets)} of {len(self.sets) + len(self.left_out)} sets'


@dataclass(frozen=True)
class VtabReport:
    """The results of the sets, and the means of the groups and of all sets."""

    results: Sequence[SetResult]
    means: Sequence[Mean]
    model: str | None  # the study's name of the model; None if the paper has no figures for it
    notes: Sequence[str]  # how the results came about, and what is left out, a sentence each

    @property
    def complete(self) -> bool:
        """Whether every set that was asked for has a result."""
        return all(result.test for result in self.results)


def build_report(results: Sequence[SetResult], options: Options, sets: VtabSets) -> VtabReport:
    """Average the results by group; ``sets`` is what they are part of."""
    paper = {entry.name: entry.figure for entry in sets.sets if entry.figure is not None}
    model, groups = sets.model if paper else None, sets.groups
    values = {result.vtab_set.name: result.test.values for result in results if result.test}
    means = [
        _mean(group, [name for name in groups if group in (groups[name], 'all')], values, paper)
        for group in [*dict.fromkeys(groups.values()), 'all']
    ]
    reasons = {result.vtab_set.name: result.reason for result in results if not result.test}
    reasons |= dict(sets.absent)
    left_out = [f'{name} ({reasons.get(name, "not asked for")})' for name in means[-1].left_out]
    rates = ', '.join(f'{rate:g}' for rate in sorted(options.rates))
    seeds = ', '.join(map(str, options.seeds))
    again = ''
    if options.images == 1000:
        again = '; the chosen rate is trained once more on train800val200'
    notes = [
        'Test accuracy in percent of the rate with the best mean validation accuracy, among '
        f'{rates}; seeds {seeds}.',
        f'Trained on the list train800, validated on val200{again}.',
    ]
    for result in results:
        if result.test and result.reason:
            notes.append(f'{result.vtab_set.name}: {result.reason}.')
    if left_out:
        notes.append(f'In no mean: {"; ".join(left_out)}.')
    if model:
        notes.append(
            f"The paper's figures are for {model}, not measured by us; means are over the same "
            'sets as ours.'
        )
    return VtabReport(results, means, model, notes)


def _mean(
    name: str,
    members: Sequence[str],
    values: Mapping[str, Mapping],
    paper: Mapping[str, float],
) -> Mean:
    """Average the sets of a group seed by seed, then over the seeds."""
    have = tuple(member for member in members if member in values)
    missing = tuple(member for member in members if member not in values)
    if not have:
        return Mean(name, have, missing, None, None)
    rows = {}
    for seed in values[have[0]]:
        total = math.fsum(values[member][seed] for member in have)
        rows[seed] = {METRIC: total / len(have)}
    known = all(member in paper for member in have)
    figure = math.fsum(paper[member] for member in have) / len(have) if known else None
    return Mean(name, have, missing, average_values(rows)[METRIC], figure)


def results_table(report: VtabReport) -> pd.DataFrame:
    """Build the table: a row a set, then a row a mean."""
    rows = []
    for result in report.results:
        entry, chosen = result.vtab_set, result.validation.get(result.rate)
        rate, validation = (f'{result.rate:g}', number(chosen.mean)) if chosen else (DASH, DASH)
        rows.append((entry.name, entry.group, rate, validation, *_cells(result.test, entry.figure)))
    for mean in report.means:
        rows.append((f'mean of {mean.title}', '', '', '', *_cells(mean.test, mean.paper)))
    columns = [
        'set',
        'group',
        'rate',
        'validation',
        'test: mean ± std (n)',
        INTERVAL,
        "paper's",
        'difference',
    ]
    table = text_table(columns, rows, 2)
    if not report.model:
        return table.iloc[:, :-2]
    return table.rename(columns={"paper's": f"{report.model}, paper's"})


def _cells(test: Average | None, paper: float | None) -> tuple[str, ...]:
    """Return mean with deviation and n, interval, the paper's figure and the difference from it."""
    difference = None if test is None or paper is None else test.mean - paper
    return mean_std_n(test), interval(test), number(paper, '.1f'), number(difference, '+.2f')


def write_results(report: VtabReport, options: Options) -> list[Path]:
    """Write ``vtab.md``, ``vtab.json`` and ``vtab.csv`` (an accuracy a row) into the work dir.

    Return their paths.
    """
    files = [Path(options.work_dir) / f'vtab.{suffix}' for suffix in ('md', 'json', 'csv')]
    notes = '\n'.join(f'- {note}' for note in report.notes)
    sets = {
        result.vtab_set.name: dict(
            group=result.vtab_set.group,
            config=result.vtab_set.config,
            validation={f'{rate:g}': asdict(entry) for rate, entry in result.validation.items()},
            rate=result.rate,
            test=result.test and asdict(result.test),
            paper=result.vtab_set.figure,
            reason=result.reason,
        )
        for result in report.results
    }
    means = {
        mean.name: {key: value for key, value in asdict(mean).items() if key != 'name'}
        for mean in report.means
    }
    common = dict(
        rates=sorted(options.rates),
        seeds=list(options.seeds),
        images=options.images,
        model=report.model,
    )
    rows = []
    for result in report.results:
        head = (result.vtab_set.name, result.vtab_set.group)
        for rate, entry in result.validation.items():
            chosen = rate == result.rate
            rows += [
                (*head, 'validation', f'{rate:g}', chosen, *pair) for pair in entry.values.items()
            ]
        if result.test:
            rows += [
                (*head, 'test', f'{result.rate:g}', True, *pair)
                for pair in result.test.values.items()
            ]
    with atomic_path(files[0]) as partial:
        partial.write_text(
            f'# VTAB\n\n{markdown_table(results_table(report))}\n\n{notes}\n', encoding='utf-8'
        )
    write_json(files[1], common | dict(sets=sets, means=means, notes=list(report.notes)))
    with atomic_path(files[2]) as partial:
        columns = ['set', 'group', 'split', 'rate', 'chosen', 'seed', 'accuracy']
        write_csv(partial, columns, rows)
    return files
