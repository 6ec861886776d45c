"""A study: arms (configs) x seeds, each run in a folder of its own.

What is left to do follows from the disk. <work dir>/<arm>/
    seed_121/          a run; its run.json records what it is, and its progress
    logs/seed_121.log  its output
    summary.json       mean, standard deviation and n
"""

import argparse
import fnmatch
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmengine.config import Config

from mmlape.errors import ConfigError, DataError, TrainingError, listed
from mmlape.lab.config.command_options import add_train_options, changes
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.fraction import label, parse_fraction
from mmlape.lab.extension import advice_on_pretraining
from mmlape.lab.runs.identity import (
    NO_WEIGHTS,
    checkpoint_keys,
    differences,
    is_missing,
    leaves,
    planned_beside,
    provenance,
    software_differences,
)
from mmlape.lab.runs.record import checkpoints, take_lock
from mmlape.lab.runs.run import Run, holder, log_file, read_run, seed_folder, start_lock, write_order, write_planned
from mmlape.lab.runs.schema import ENDED, Identity
from mmlape.lab.studies import Arm, check_arm_name, is_study, read_study
from mmlape.lab.training.plan import missing_weights, plan_run


def parse_arm(values: Sequence[str], cfg_options: Sequence[str] = ()) -> Arm:
    """Return the arm of the values of ``--arm``, NAME CONFIG [KEY=VALUE ...].

    ConfigError for others.
    """
    if len(values) < 2 or any('=' not in value for value in values[2:]):
        raise ConfigError(f'--arm {" ".join(values)}: expected NAME CONFIG [KEY=VALUE ...]')
    return Arm(values[0], values[1], (*cfg_options, *values[2:]))


def read_arms(
    paths: Sequence[str], cfg_options: Sequence[str] = (), named: Sequence[Sequence[str]] = ()
) -> tuple[list[Arm], tuple[int, ...], str]:
    """Return the arms of studies and configs, the studies' seeds, and the default work dir.

    Args:
        paths: Studies, arms of studies, and configs.
        cfg_options: Changes of every arm.
        named: Further arms, as `parse_arm` takes each.

    Raises:
        ConfigError: A study is wrong, or two have different seeds.
    """
    added = [parse_arm(values, cfg_options) for values in named]
    configs = [*paths, *(arm.config for arm in added)]
    studies = {config: read_study(config) for config in configs if is_study(config)}
    arms: list[Arm] = []
    for path in paths:
        if study := studies.get(path):
            arms += [replace(arm, cfg_options=tuple(cfg_options)) for arm in study.arms]
        else:
            arms.append(Arm.of(path, cfg_options))
    arms += added
    names = {studies[path].name if path in studies else '' for path in paths}
    seeds = {study.seeds: study.file for study in studies.values()}
    if len(seeds) > 1:
        raise ConfigError(f'--seeds: {" and ".join(seeds.values())} have different ones, so give them')
    return (arms, next(iter(seeds), ()), f'work_dirs/{names.pop()}'.rstrip('/') if len(names) == 1 else 'work_dirs')


def choose(arms: Sequence[Arm], patterns: Sequence[str]) -> list[Arm]:
    """Return the arms whose names fit one of the patterns, as shells write them.

    ConfigError if none fits one.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(arm.name, pattern) for arm in arms):
            raise ConfigError(f"--arms: no arm '{pattern}'; there are: {', '.join(arm.name for arm in arms)}")
    return [arm for arm in arms if any(fnmatch.fnmatchcase(arm.name, pattern) for pattern in patterns)]


def on_fractions(arms: Sequence[Arm], fractions: Sequence[str]) -> list[Arm]:
    """Return an arm for each fraction of each arm's training images, 'NAME+1of16'.

    On all, it keeps its name. A fraction replaces one that the arm or its config has, that of all
    images, too.
    """
    shares = [parse_fraction(text) for text in fractions]
    return [
        replace(
            arm,
            name=f'{arm.name}+{label(share)}' if share < 1 else arm.name,
            cfg_options=(*arm.cfg_options, f'data_fraction={share}'),
        )
        for arm in arms
        for share in shares
    ]


STUDY_OPTIONS = ('seed', 'work_dir', 'arm', 'resume', 'launcher', 'cfg_options')
"""Options of training that a study sets itself."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study, and what is left to do."""

    arm: Arm
    # the arguments of ``mmlape train``, except ``--resume`` and the launcher
    train_args: tuple[str, ...]
    run: Run  # the state of its folder
    # 'skip' (finished), 'start', 'resume', 'watch' (another process trains it) or 'refuse'
    action: str
    reason: str = ''  # what the state alone does not tell
    missing: tuple[tuple[str, str], ...] = ()  # keys and files of weights that it starts from and that are not there
    missing_data: tuple[str, ...] = ()  # roots of its data that are not there

    @property
    def folder(self) -> Path:
        """Its work dir."""
        return self.run.folder

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f'{self.arm.name}, seed {self.run.seed}'

    @property
    def log(self) -> Path:
        """The file of its output."""
        return log_file(self.folder)

    def acquire(self) -> int | None:
        """Lock the run; return the descriptor of the lock, or None if another process holds it."""
        lock = start_lock(self.folder)
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            return take_lock(lock)
        except OSError as error:
            raise TrainingError(
                f'cannot write into {lock.parent} ({error.strerror}): give another --work-dir'
            ) from error


@dataclass
class Study:
    """Arms x seeds.

    Raises:
        ConfigError: A config cannot be loaded, names or seeds are not unique, or ``extra`` has
            options that ``mmlape train`` does not take or that the study sets itself.
    """

    arms: Sequence[Arm]  # with different names
    seeds: Sequence[int]  # different numbers
    work_dir: str | Path = 'work_dirs'  # holds a folder for each arm
    processes: int = 1  # of one run, one per GPU; without GPUs they are CPU processes
    extra: Sequence[str] = ()  # further options of ``mmlape train``, the same for all runs
    configs: dict[str, Config] = field(init=False, repr=False, default_factory=dict)
    _identities: dict[str, Identity] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_names_and_seeds(self.arms, self.seeds)
        self.options = train_options(self.extra)
        _require_own(self.options)
        for arm in self.arms:
            try:
                self._load(arm)
            except (ConfigError, DataError) as error:
                raise type(error)(f'arm {arm.name}: {error}') from error

    def _load(self, arm: Arm) -> None:
        """Read a config and plan its run, as training does."""
        options = self.options
        cfg = load_config(arm.config, [*arm.cfg_options, *changes(options)])
        try:
            plan = plan_run(
                cfg,
                self.processes,
                amp=options.amp,
                batch=options.batch,
                share=options.shorten,
                compile=options.compile,
            )
        except ConfigError as error:
            count = processes_of(cfg)
            hint = f'--processes {count} is for the batch of the recipe; ' if count > 1 else ''
            hint = hint if self.processes == 1 else ''
            raise ConfigError(f'{error}\n({hint}options of training go after a --)') from error
        self.configs[arm.name], self._identities[arm.name] = cfg, plan.identity

    def folder(self, arm: Arm) -> Path:
        """Return the folder of an arm's runs."""
        return Path(self.work_dir) / arm.name

    def write_plan(self) -> None:
        """Record seeds and order of the arms in the work dir, where `status` and `report` read them."""
        for arm in self.arms:
            write_planned(self.folder(arm), self.seeds)
        write_order(self.work_dir, [arm.name for arm in self.arms])

    def plan(self) -> list[PlannedRun]:
        """Plan all runs, every arm's first seed before any arm's second.

        Read the disk, change nothing.
        """
        plan = [self._planned(arm, seed) for seed in self.seeds for arm in self.arms]
        unfinished = {planned.arm.name for planned in plan if planned.action != 'skip'}
        return [self._refuse_mixture(planned) if planned.arm.name in unfinished else planned for planned in plan]

    def _refuse_mixture(self, planned: PlannedRun) -> PlannedRun:
        """Refuse a finished run if the arm's other runs would have other software.

        They could not be averaged.
        """
        if planned.action != 'skip' or self.options.allow_different_software:
            return planned
        recorded = planned.run.identity
        mine = self._identity(planned.arm, planned.run.seed)
        lines = software_differences(recorded, planned_beside(mine, recorded))
        if not lines:
            return planned
        return replace(planned, action='refuse', reason=_other_run(planned.folder, lines, True))

    def _planned(self, arm: Arm, seed: int) -> PlannedRun:
        """Plan one run."""
        folder = seed_folder(self.folder(arm), seed)
        train_args = run_arguments(arm, folder, seed, self.extra)
        planned = PlannedRun(arm, train_args, Run(folder, seed, 'missing', arm.name), 'refuse')
        try:
            planned = replace(planned, run=read_run(folder, seed))
        except DataError as error:
            return replace(planned, reason=str(error))
        refusal = self._refusal(planned)
        if refusal:
            return replace(planned, reason=refusal)
        if other := holder(folder):
            return replace(planned, action='watch', reason=f'process {other["pid"]} on {other["host"]}')
        state = planned.run.state
        action = {'finished': 'skip', 'missing': 'start'}.get(state, 'resume')
        reasons = [planned.run.outcome] if state in (*ENDED, 'broken') or planned.run.partial else []
        planned = replace(planned, action=action, reason='; '.join(reasons))
        if action == 'skip':
            return planned
        weights = tuple((key, path) for key, path in checkpoint_keys(self.configs[arm.name]) if is_missing(path))
        return replace(planned, missing=weights, missing_data=self._missing_data(arm))

    def _missing_data(self, arm: Arm) -> tuple[str, ...]:
        """Return the data roots of an arm that are not there."""
        cfg = self.configs[arm.name]
        values = leaves({key: cfg.get(key) for key in ('train_dataloader', 'val_dataloader')})
        roots = dict.fromkeys(value for key, value in values if key.endswith('.data_root') and value)
        return tuple(root for root in roots if '://' not in root and not Path(root).expanduser().exists())

    def warnings(self) -> list[str]:
        """Return reasons to doubt a comparison of the arms.

        Pretrained weights of different provenance. Unknown provenances are taken for the same, but
        for a distinct one.
        """
        starts = {}  # the file that a model starts from, a teacher's apart
        for arm in self.arms:
            paths = (
                path for key, path in checkpoint_keys(self.configs[arm.name]) if not key.endswith('teacher_checkpoint')
            )
            starts[arm.name] = next(paths, None)
        provenances = {name: provenance(path) if path else NO_WEIGHTS for name, path in starts.items()}
        sources = set(filter(None, provenances.values()))
        is_distinct = any(source.distinct for source in sources)
        if len(sources) < 2 and not (is_distinct and None in provenances.values()):
            return []
        lines = (
            f'{name} from {starts[name] or "no weights"}' + (f' ({source.source})' if starts[name] and source else '')
            for name, source in provenances.items()
        )
        return [
            'the arms start from different pretrainings, which are compared, too: '
            f'{"; ".join(lines)}{advice_on_pretraining()}'
        ]

    def _refusal(self, planned: PlannedRun) -> str:
        """Return why a run's folder cannot hold this study's run; empty if it can."""
        run, weights = planned.run, checkpoints(planned.folder)
        if run.state == 'missing':
            if not weights:
                return ''
            return f'{run.folder} holds {weights[0].name}, but no run.json that identifies the run'
        if run.identity is None:
            unused = run.state in ENDED and not weights
            if unused:
                return ''
            return f'{run.folder} has no identity in its run.json (an older version started it)'
        mine = planned_beside(self._identity(planned.arm, run.seed), run.identity)
        lines, software = (differences(run.identity, mine, for_resume=True), software_differences(run.identity, mine))
        if run.finished and run.identity.world_size != self.processes:
            lines.append(f'world_size: {run.identity.world_size} -> {self.processes}')
        if run.finished and run.identity.compiled != mine.compiled:
            lines.append(f'compiled: {run.identity.compiled} -> {mine.compiled}')
        if run.finished or self.options.allow_different_software:
            lines = [line for line in lines if line not in software]
        return _other_run(run.folder, lines, set(lines) <= set(software)) if lines else ''

    def _identity(self, arm: Arm, seed: int) -> Identity:
        """Return the identity of a run of this study."""
        return replace(self._identities[arm.name], seed=seed)


def run_arguments(arm: Arm, folder: Path, seed: int, extra: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of ``mmlape train`` for a run, without ``--resume`` and the launcher."""
    changes = ('--cfg-options', *arm.cfg_options) if arm.cfg_options else ()
    options = ('--work-dir', str(folder), '--arm', arm.name, '--seed', str(seed))
    return arm.config, *options, *extra, *changes


def processes_of(cfg: Config) -> int:
    """Return how many processes have the total batch of a recipe; 1 if that is unknown or no multiple."""
    total = (cfg.get('auto_scale_lr') or {}).get('base_batch_size') or 0
    images = (cfg.get('train_dataloader') or {}).get('batch_size') or 0
    images *= (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)
    return total // images if images and total % images == 0 else 1


def require_startable(plan: Sequence[PlannedRun]) -> None:
    """Check that no run is refused, and that the weights are there which the runs start from.

    Raises:
        TrainingError: Runs are refused; it has the reason of each.
        ConfigError: A file is missing; it names arm, key and file.
    """
    refused = [planned for planned in plan if planned.action == 'refuse']
    if refused:
        lines = ''.join(f'\n  {planned.label}: {planned.reason}' for planned in refused)
        raise TrainingError(f'nothing was started, {len(refused)} of {len(plan)} runs are refused:{lines}')
    for planned in plan:
        for key, path in planned.missing:
            name, config = planned.arm.name, planned.arm.config
            raise ConfigError(
                f'arm {name}: {missing_weights(key, path)}, or for this arm alone by --arm {name} {config} {key}=FILE'
            )


def _other_run(folder: Path, lines: Sequence[str], software: bool) -> str:
    hint = ', or add -- --allow-different-software' if software else ''
    return f'{folder} is another run ({listed(lines)}): give another --work-dir or move it{hint}'


def check_names_and_seeds(arms: Sequence[Arm], seeds: Sequence[int]) -> None:
    """Raise ConfigError if arms or seeds are given twice or none is, or an arm may not have its name."""
    names = [arm.name for arm in arms]
    for what, values, hint in (
        ('--seeds', [str(seed) for seed in seeds], ''),
        ('arms', names, ': give names, by --arm NAME CONFIG'),
    ):
        twice = sorted(value for value, count in Counter(values).items() if count > 1)
        if twice:
            raise ConfigError(f'{what}: {", ".join(twice)} given twice{hint}')
        if not values:
            raise ConfigError(f'{what}: none given')
    for name in names:
        check_arm_name(name)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise ConfigError(f'options after --: mmlape train: {message}')


def train_options(words: Sequence[str]) -> argparse.Namespace:
    """Parse the options of ``mmlape train``."""
    parser = _Parser(add_help=False)
    add_train_options(parser)
    return parser.parse_args(['config', *words])


def _require_own(options: argparse.Namespace) -> None:
    """Raise ConfigError if options after ``--`` are among those that a study sets itself."""
    defaults = train_options(())
    set_twice = [
        f'--{name.replace("_", "-")}' for name in STUDY_OPTIONS if getattr(options, name) != getattr(defaults, name)
    ]
    if set_twice:
        raise ConfigError(f'{", ".join(set_twice)} after --: the study sets it itself')
