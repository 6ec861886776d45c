"""VTAB-1k: a pretrained model fine-tuned on 19 small sets (arXiv:1910.04867), as the Dual PatchNorm paper does it.

Every learning rate is trained with every seed; the rate of the best mean validation accuracy is
tested. The runs are a study (`mmlape.lab.experiments.planning`), so the scheduler starts, watches and
resumes them. A test accuracy is kept beside its run, with the hash of the list of images; nothing
is tested twice.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd
from mmengine.config import Config

from mmlape.console.page import Element
from mmlape.console.tables import text_table
from mmlape.errors import DataError
from mmlape.lab.experiments.averages import Average, number, summarise
from mmlape.lab.experiments.launchers import Launcher, LocalLauncher
from mmlape.lab.experiments.multi_seed import print_plan
from mmlape.lab.experiments.planning import PlannedRun, Study
from mmlape.lab.experiments.report import Report, average, build
from mmlape.lab.experiments.report.tables import results_table
from mmlape.lab.experiments.scheduler import Scheduler
from mmlape.lab.extension import PaperFigures, Quotation
from mmlape.lab.inference.evaluator import test
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.runs.run import Run, read_seeds
from mmlape.lab.studies import Arm
from mmlape.lab.training.optim import check_precision, quiet_logger
from mmlape.projects.vtab.sets import VtabSet, VtabSets

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
    test: dict[int, float] | None = None  # the test accuracies by seed; None before the tests
    # why there is no rate or no test accuracy; else what is to be said about the choice
    reason: str = ''


def run_sets(
    sets: Sequence[VtabSet], options: Options, launcher: Launcher, dry_run: bool = False, wait: bool = True
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
        print_plan(plan, launcher)
        return []
    log = functools.partial(print, flush=True)
    log(launcher.describe())
    study.write_plan()
    Scheduler(plan, launcher, log).run(wait)
    if not wait:
        return []
    results = [choose(entry, options, study.options.allow_different_software) for entry in sets]
    chosen = [result.vtab_set.arm(result.rate, 1000) for result in results if result.rate is not None]
    if options.images == 1000 and chosen:
        log(f'once more on 1000 images: {len(chosen)} sets x {len(options.seeds)} seeds')
        study = options.study(chosen)
        study.write_plan()
        Scheduler(_set_by_set(study), launcher, log).run()
    return evaluate(results, study, options, log)


def _set_by_set(study: Study) -> list[PlannedRun]:
    """Plan a study so that one set is finished before the next is begun."""
    order = [arm.name.rpartition('-lr')[0] for arm in study.arms]
    return sorted(study.plan(), key=lambda planned: order.index(planned.arm.name.rpartition('-lr')[0]))


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
    evaluated = []
    for result in results:
        unfinished = [f'seed {run.seed}: {run.outcome}' for run in runs.get(result, ()) if not run.counts]
        if result.rate is None or unfinished:
            evaluated.append(replace(result, reason='; '.join(filter(None, [result.reason, *unfinished]))))
            continue
        values = {}
        for run in runs[result]:
            value = _tested(run, result.vtab_set.test_list)
            if value is None:
                value = _test(run, study.configs[run.arm], result.vtab_set.test_list)
                log(f'{run.arm}, seed {run.seed}: test {value:.2f}')
            values[run.seed] = value
        evaluated.append(replace(result, test=values))
        if options.prune:
            _prune(result, options)
    return evaluated


def _tested(run: Run, listed: Path) -> float | None:
    """Return the test accuracy of a run, if it was measured on this very list."""
    folder = run.folder / 'test'
    stamp = folder / 'list.sha256'
    if not stamp.is_file() or stamp.read_text() != _digest(listed):
        return None
    return json.loads((folder / 'metrics.json').read_text())['metrics'][METRIC]


def _test(run: Run, cfg: Config, listed: Path) -> float:
    final = next(iter(checkpoints(run.folder)), None)
    if final is None or final.stem.rpartition('_')[2] != str(run.record.max_iters):
        raise DataError(
            f'{run.folder} has no checkpoint of iteration {run.record.max_iters}, so it cannot '
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


class Mean(NamedTuple):
    """The mean over the sets of a group, or over all."""

    title: str  # its name, and over how many sets: 'mean of natural, 6 of 7 sets'
    test: dict[int, float]  # the mean test accuracy by seed; empty without a set
    # the mean of the paper's figures over the same sets; None if one of them has none
    paper: float | None


def means(results: Sequence[SetResult], sets: VtabSets) -> list[Mean]:
    """Return the means of each group of ``sets`` and of all, seed by seed."""
    paper = {entry.name: entry.figure for entry in sets.sets if entry.figure is not None}
    values = {result.vtab_set.name: result.test for result in results if result.test}
    found = []
    for group in [*dict.fromkeys(sets.groups.values()), 'all']:
        members = [name for name, own in sets.groups.items() if group in (own, 'all')]
        have = [name for name in members if name in values]
        by_seed = {seed: fmean(values[name][seed] for name in have) for seed in (values[have[0]] if have else ())}
        figure = fmean(paper[name] for name in have) if have and paper.keys() >= {*have} else None
        found.append(Mean(f'mean of {group}, {len(have)} of {len(members)} sets', by_seed, figure))
    return found


def build_report(results: Sequence[SetResult], options: Options, sets: VtabSets) -> Report:
    """Build the report: one arm, whose metrics are the sets and their means.

    Its further metrics are the validation accuracies of each rate. ``sets`` is what the results are
    part of.
    """
    averages = means(results, sets)
    tests = {result.vtab_set.name: result.test or {} for result in results} | {one.title: one.test for one in averages}
    papers = {result.vtab_set.name: result.vtab_set.figure for result in results}
    papers |= {one.title: one.paper for one in averages}
    validations = {
        f'{result.vtab_set.name}, validation at {rate:g}': entry.values
        for result in results
        for rate, entry in result.validation.items()
    }
    measured = {
        seed: {metric: values[seed] for metric, values in {**tests, **validations}.items() if seed in values}
        for seed in options.seeds
    }
    figures = {name: f'{figure:.1f}' for name, figure in papers.items() if figure is not None}
    quoted = Quotation(sets.paper, sets.runs, f'VTAB-1k, {sets.model}', figures)
    arm = average(
        Path(options.work_dir).resolve().name,
        metrics=[name for name, values in tests.items() if values],
        measured=measured,
        paper=PaperFigures(quotations=(quoted,) if figures and sets.model else ()),
    )
    report = build([arm], 'VTAB-1k', notes=tuple(_notes(results, options, sets)))
    return replace(report, first=(Element(sets_table(report, results)),))


def _notes(results: Sequence[SetResult], options: Options, sets: VtabSets) -> Iterator[str]:
    """Yield how the results came about, and what is left out, a sentence each."""
    rates = ', '.join(f'{rate:g}' for rate in sorted(options.rates))
    seeds = ', '.join(map(str, options.seeds))
    again = ''
    if options.images == 1000:
        again = '; the chosen rate is trained once more on train800val200'
    yield (
        f'Test accuracy in percent of the rate with the best mean validation accuracy, among {rates}; seeds {seeds}.'
    )
    yield f'Trained on the list train800, validated on val200{again}.'
    chosen = [f'{result.vtab_set.name} {result.rate:g}' for result in results if result.rate is not None]
    if chosen:
        yield f'Chosen rates: {", ".join(chosen)}.'
    for result in results:
        if result.test and result.reason:
            yield f'{result.vtab_set.name}: {result.reason}.'
    reasons = dict.fromkeys(sets.groups, 'not asked for') | dict(sets.absent)
    reasons |= {result.vtab_set.name: result.reason for result in results}
    tested = {result.vtab_set.name for result in results if result.test}
    left_out = [f'{name} ({reason})' for name, reason in reasons.items() if name not in tested]
    if left_out:
        yield f'In no mean: {"; ".join(left_out)}.'
    if sets.model and any(entry.figure is not None for entry in sets.sets):
        yield (f"The paper's figures are for {sets.model}, not measured by us; means are over the same sets as ours.")


def sets_table(report: Report, results: Sequence[SetResult]) -> pd.DataFrame:
    """Return the report's table, a row a set or a mean, with the group of each set, its rate and its validation."""
    chosen = {
        one.vtab_set.name: (one.vtab_set.group, f'{one.rate:g}', number(one.validation[one.rate].mean))
        for one in results
        if one.rate is not None
    }
    table = results_table(report)
    names = table.index.get_level_values('metric')
    rows = [(name, *chosen.get(name, ('', '', '')), *cells) for name, cells in zip(names, table.to_numpy())]
    return text_table(['set', 'group', 'rate', 'validation', *table.columns], rows, 2)
