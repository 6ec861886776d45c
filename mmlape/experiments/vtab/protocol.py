"""The protocol: every rate with every seed, the rate of the best mean validation accuracy, the test of its seeds.

The runs are a study (`mmlape.experiments.study`), so the scheduler starts, watches and resumes them. A test accuracy
is kept beside its run, with the hash of the list of images; nothing is tested twice.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmengine.config import Config

from mmlape.console import console
from mmlape.datasets.sources import read_lines
from mmlape.engine.evaluator import test
from mmlape.engine.optim import check_precision, quiet_logger
from mmlape.errors import DataError
from mmlape.experiments.arm import Arm
from mmlape.experiments.averages import moments, summarise
from mmlape.experiments.launchers import Launcher, LocalLauncher
from mmlape.experiments.multi_seed import plan_table
from mmlape.experiments.scheduler import Progress, Scheduler
from mmlape.experiments.study import PlannedRun, Study
from mmlape.experiments.vtab.sets import VtabSet
from mmlape.runs.record import checkpoints
from mmlape.runs.run import Run, read_seeds

METRIC = 'accuracy/top1'
RATES = (3e-4, 1e-3, 3e-3)
"""The paper's listing shows the first; the others are ours."""


@dataclass(frozen=True)
class Options:
    """How the sets are trained.

    Attributes:
        rates: Learning rates to choose among.
        seeds: Of every rate.
        images: 800, or 1000 to train the chosen rate once more with the images of validation.
        work_dir: Receives ``<set>-lr<rate>/seed_<S>``.
        processes: Of one run.
        extra: Further options of ``mmlape train``.
        prune: Whether to delete the checkpoints of the other rates once a set is tested.
    """

    rates: Sequence[float]
    seeds: Sequence[int]
    images: int = 800
    work_dir: Path = Path('work_dirs/vtab')
    processes: int = 1
    extra: Sequence[str] = ()
    prune: bool = False

    def study(self, arms: Sequence[Arm]) -> Study:
        """Return the study of some arms."""
        with quiet_logger():
            return Study(arms, self.seeds, self.work_dir, self.processes, self.extra)


@dataclass(frozen=True, eq=False)
class SetResult:
    """What the runs of a set have given.

    Attributes:
        vtab_set: The set.
        validation: Mean, deviation and ``values`` over seeds, as `mmlape.experiments.averages.moments` has them, of
            the last validation accuracy by rate.
        rate: The chosen one; None while runs are missing.
        test: The moments of the test accuracy; None before the tests.
        reason: Why there is no rate or no test accuracy; else what is to be said about the choice.
    """

    vtab_set: VtabSet
    validation: dict[float, dict]
    rate: float | None = None
    test: dict | None = None
    reason: str = ''

    @property
    def test_list(self) -> Path:
        """The list of the test split."""
        return Path(self.vtab_set.cfg.data_root) / 'test.txt'

    def arm(self, images: int) -> Arm:
        """Return the runs of the chosen rate."""
        return self.vtab_set.arm(self.rate, images)

    def runs(self, options: Options) -> list[Run]:
        """Return the runs to test."""
        return read_seeds(options.work_dir / self.arm(options.images).name, options.seeds)


def run_sets(
    sets: Sequence[VtabSet], options: Options, launcher: Launcher, dry_run: bool = False, wait: bool = True
) -> list[SetResult]:
    """Train what is not finished, choose the rates, and test.

    Args:
        sets: The sets, checked.
        options: How they are trained.
        launcher: Starts the runs.
        dry_run: Whether to print the plan only.
        wait: Whether to follow the runs to their end; nothing is chosen otherwise.

    Returns:
        The result of each set; empty after a dry run or without waiting.

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
    Scheduler(plan, launcher, log).run(wait)
    if not wait:
        return []
    results = [choose(entry, options, study.options.allow_different_software) for entry in sets]
    chosen = [result for result in results if result.rate is not None]
    if options.images == 1000 and chosen:
        log(f'once more on 1000 images: {len(chosen)} sets x {len(options.seeds)} seeds')
        study = options.study([result.arm(1000) for result in chosen])
        Scheduler(_set_by_set(study), launcher, log).run()
    return evaluate(results, study, options, log)


def _set_by_set(study: Study) -> list[PlannedRun]:
    """Plan a study so that one set is finished before the next is begun."""
    order = [arm.name.rpartition('-lr')[0] for arm in study.arms]
    return sorted(study.plan(), key=lambda planned: order.index(planned.arm.name.rpartition('-lr')[0]))


def choose(vtab_set: VtabSet, options: Options, allow_software: bool = False) -> SetResult:
    """Choose the rate of the best mean validation accuracy over all seeds, the lower one of equals.

    A rate with a run that diverged cannot be chosen. While a run of another rate is missing, none is.
    """
    complete, diverged, missing = {}, [], []
    for rate in sorted(options.rates):
        runs = read_seeds(options.work_dir / vtab_set.arm(rate).name, options.seeds)
        summary = summarise(runs, allow_software)
        entry = summary['last']['metrics'].get(METRIC)
        if entry and entry['n'] == len(options.seeds):
            complete[rate] = entry
        elif any(outcome.startswith('diverged') for outcome in summary['unfinished'].values()):
            diverged.append(f'lr {rate:g} diverged')
        else:
            lines = [f'seed {seed}: {outcome}' for seed, outcome in summary['unfinished'].items()]
            missing.append(f'lr {rate:g}: {"; ".join(lines)}')
    if missing or not complete:
        return SetResult(vtab_set, complete, reason='; '.join([*missing, *diverged]))
    best = max(complete, key=lambda rate: complete[rate]['mean'])  # the first of equals
    return SetResult(vtab_set, complete, best, reason='; '.join(diverged))


def evaluate(
    results: Sequence[SetResult], study: Study, options: Options, log: Callable[[str], None]
) -> list[SetResult]:
    """Evaluate the final checkpoints of the chosen rates on the test splits.

    Args:
        results: With their rates.
        study: Has the arms of these rates.
        options: How they were trained.
        log: Receives each line of progress.
    """
    runs = {result: result.runs(options) for result in results if result.rate is not None}
    images = {result: len(read_lines(str(result.test_list))) for result in runs}
    progress = Progress(sum(images[result] * len(set_runs) for result, set_runs in runs.items()), log)
    evaluated = []
    for result in results:
        unfinished = [f'seed {run.seed}: {run.outcome}' for run in runs.get(result, ()) if not run.counts]
        if result.rate is None or unfinished:
            evaluated.append(replace(result, reason='; '.join(filter(None, [result.reason, *unfinished]))))
            continue
        values = {}
        for run in runs[result]:
            value = _tested(run, result.test_list)
            if value is None:
                value = _test(run, study.configs[run.arm], result.test_list)
                progress.finish(images[result])
                progress.log(f'{run.arm}, seed {run.seed}: test {value:.2f}')
            else:
                progress.skip(images[result])
            values[run.seed] = {METRIC: value}
        evaluated.append(replace(result, test=moments(values)[METRIC]))
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
    if final is None or final.stem.rpartition('_')[2] != str(run.record['max_iters']):
        raise DataError(
            f'{run.folder} has no checkpoint of iteration {run.record["max_iters"]}, so it cannot be tested: remove '
            'the folder to train it again'
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
        for run in read_seeds(options.work_dir / result.vtab_set.arm(rate).name, options.seeds):
            for path in checkpoints(run.folder):
                path.unlink()
