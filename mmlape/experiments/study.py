"""A study: arms (configurations) x seeds, each run in a folder of its own. What is to be done follows from the disk.

<work dir>/<arm>/
    seed_121/          a run; its run.json says what it is, and how far
    logs/seed_121.log  what it printed
    summary.json       mean, standard deviation and n
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmengine.config import Config

from mmlape.engine.config import load_config
from mmlape.engine.plan import RunPlan, plan_run
from mmlape.errors import ConfigError, DataError, TrainingError
from mmlape.runs.identity import checkpoint_keys, differences, is_missing, software_differences
from mmlape.runs.locks import lock_holder, take_lock
from mmlape.runs.record import checkpoints, running_in
from mmlape.runs.run import Run, read_run, seed_folder

OWN_OPTIONS = ('seed', 'work_dir', 'resume', 'launcher', 'cfg_options')
SHOWN = 6


@dataclass(frozen=True)
class Arm:
    """One configuration of a comparison.

    Args:
        name: Of its folder, and in tables.
        config: A file, or ``mmlape::folder/name``.
        cfg_options: ``key=value`` changes of the configuration.
    """

    name: str
    config: str
    cfg_options: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: str | Path, cfg_options: Sequence[str] = ()) -> 'Arm':
        """An arm that is named as its configuration."""
        name = re.split(r'/|::', str(config))[-1].removesuffix('.py')
        return cls(name, str(config), tuple(cfg_options))


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study, and what is to be done about it.

    Args:
        words: What ``mmlape train`` is called with, but for ``--resume`` and the launcher.
        run: What its folder says.
        action: 'skip' (finished), 'start', 'resume', 'watch' (somebody else trains it now) or 'refuse'.
        why: More than the state says.
    """

    arm: Arm
    words: tuple[str, ...]
    run: Run
    action: str
    why: str = ''

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def label(self) -> str:
        return f'{self.arm.name}, seed {self.run.seed}'

    @property
    def log(self) -> Path:
        """Where what it prints goes."""
        return self.folder.parent / 'logs' / f'{self.folder.name}.log'

    @property
    def claim(self) -> Path:
        """The lock of whoever starts it, for the time before the training holds the run's own."""
        return self.log.with_name(f'.{self.folder.name}.lock')

    def take(self) -> int | None:
        """Claims the run; returns the lock's descriptor, or None if somebody else has it.

        Raises:
            TrainingError: The folder cannot be written to.
        """
        try:
            self.claim.parent.mkdir(parents=True, exist_ok=True)
            return take_lock(self.claim)
        except OSError as error:
            raise TrainingError(
                f'cannot write into {self.claim.parent} ({error.strerror}): give another --work-dir'
            ) from error

    def busy(self) -> dict | None:
        """Who trains it now, or is about to; None if nobody does."""
        return running_in(self.folder) or lock_holder(self.claim)


@dataclass
class Study:
    """Arms x seeds.

    Args:
        arms: With different names.
        seeds: Different numbers.
        work_dir: Each arm has a folder below it.
        gpus: Processes of one run; without GPUs they are CPU processes.
        extra: Further options of ``mmlape train``, the same for all runs.

    Raises:
        ConfigError: A configuration cannot be loaded, names or seeds are not unique, or ``extra`` is not what
            ``mmlape train`` takes, or is set here.
    """

    arms: Sequence[Arm]
    seeds: Sequence[int]
    work_dir: str | Path = 'work_dirs'
    gpus: int = 1
    extra: Sequence[str] = ()
    configs: dict[str, Config] = field(init=False, repr=False, default_factory=dict)
    _plans: dict[str, RunPlan] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        _require_different('--seeds', self.seeds)
        _require_different('arms', [arm.name for arm in self.arms], ': give names, by --arm NAME CONFIG')
        for arm in self.arms:
            if not re.fullmatch(r'[\w+][\w.+-]*', arm.name):
                raise ConfigError(f"arm '{arm.name}': a name is made of letters, digits, '_', '-', '+' and '.'")
        if self.gpus < 1:
            raise ConfigError(f'--gpus {self.gpus}: at least one process')
        self.options = _train_options(self.extra)
        for arm in self.arms:
            self._load(arm)

    def _load(self, arm: Arm) -> None:
        """Read a configuration and plan its run, as the trainer does."""
        try:
            cfg = load_config(arm.config, list(arm.cfg_options))
        except (ConfigError, DataError) as error:
            raise type(error)(f'arm {arm.name}: {error}') from error
        try:
            plan = plan_run(cfg, self.gpus, amp=self.options.amp, batch=self.options.batch)
        except ConfigError as error:
            raise ConfigError(f'arm {arm.name}: {error}\n(what trainings take stands after a --)') from error
        self.configs[arm.name], self._plans[arm.name] = cfg, plan

    def folder(self, arm: Arm) -> Path:
        """Where an arm's runs are."""
        return Path(self.work_dir) / arm.name

    def plan(self) -> list[PlannedRun]:
        """What is to be done, every arm's first seed before any arm's second; reads the disk and changes nothing."""
        plan = [self.look(arm, seed) for seed in self.seeds for arm in self.arms]
        unfinished = {planned.arm.name for planned in plan if planned.action != 'skip'}
        return [self._refuse_mixture(planned) if planned.arm.name in unfinished else planned for planned in plan]

    def _refuse_mixture(self, planned: PlannedRun) -> PlannedRun:
        """Refuses a finished run of an arm that goes on with other software: the two could not be averaged."""
        if planned.action != 'skip' or self.options.allow_different_software:
            return planned
        lines = software_differences(planned.run.identity, self._identity(planned.arm, planned.run.seed))
        return replace(planned, action='refuse', why=_other_run(planned.folder, lines, True)) if lines else planned

    def look(self, arm: Arm, seed: int) -> PlannedRun:
        """What is to be done about one run."""
        folder = seed_folder(self.folder(arm), seed)
        words = [arm.config, '--work-dir', str(folder), '--seed', str(seed), *self.extra]
        words += ['--cfg-options', *arm.cfg_options] if arm.cfg_options else []
        planned = PlannedRun(arm, tuple(words), Run(folder, seed, 'missing', arm=arm.name), 'refuse')
        try:
            planned = replace(planned, run=read_run(folder, seed))
        except DataError as error:
            return replace(planned, why=str(error))
        refusal = self._refusal(planned)
        if refusal:
            return replace(planned, why=refusal)
        busy = planned.busy()
        if busy:
            return replace(planned, action='watch', why=f'process {busy["pid"]} on {busy["host"]}')
        state = planned.run.state
        action = {'finished': 'skip', 'missing': 'start'}.get(state, 'resume')
        why = planned.run.outcome if state in ('failed', 'broken') or planned.run.partial else ''
        return replace(planned, action=action, why=why)

    def check_checkpoints(self, arms: Sequence[Arm]) -> None:
        """Makes sure that the weights which these arms start from are there.

        Raises:
            ConfigError: A file is not; the message names arm, key and file.
        """
        for arm in arms:
            for key, path in checkpoint_keys(self.configs[arm.name]):
                if is_missing(path):
                    raise ConfigError(
                        f'arm {arm.name}: {key}={path}: there is no such file; give one by --cfg-options '
                        f'{key}=FILE, or for this arm alone by --arm {arm.name} {arm.config} {key}=FILE'
                    )

    def _refusal(self, planned: PlannedRun) -> str:
        """Why what is in a run's folder cannot be this study's run; empty if it can."""
        run, weights = planned.run, checkpoints(planned.folder)
        if run.state == 'missing':
            return f'{run.folder} holds {weights[0].name}, but no run.json that says whose it is' if weights else ''
        if run.identity is None:
            unused = run.state == 'failed' and not weights
            return '' if unused else f'{run.folder} does not say what it is a run of (an older version began it)'
        mine = self._identity(planned.arm, run.seed)
        lines, software = differences(run.identity, mine, for_resume=True), software_differences(run.identity, mine)
        if run.finished and run.identity['world_size'] != self.gpus:
            lines.append(f'world_size: {run.identity["world_size"]} -> {self.gpus}')
        if run.finished or self.options.allow_different_software:
            lines = [line for line in lines if line not in software]
        return _other_run(run.folder, lines, set(lines) <= set(software)) if lines else ''

    def _identity(self, arm: Arm, seed: int) -> dict:
        """Return the identity of a run of this study."""
        return dict(self._plans[arm.name].identity, seed=seed)


def refuse(plan: Sequence[PlannedRun]) -> None:
    """Stops where a folder holds what must not be mixed up with this study.

    Raises:
        TrainingError: With every refused run's reason.
    """
    refused = [planned for planned in plan if planned.action == 'refuse']
    if refused:
        lines = ''.join(f'\n  {planned.label}: {planned.why}' for planned in refused)
        raise TrainingError(f'nothing was started, because {len(refused)} of {len(plan)} runs cannot be:{lines}')


def _other_run(folder: Path, lines: Sequence[str], software: bool) -> str:
    more = f'; and {len(lines) - SHOWN} more' if len(lines) > SHOWN else ''
    hint = ', or add -- --allow-different-software' if software else ''
    return f'{folder} is another run ({"; ".join(lines[:SHOWN])}{more}): give another --work-dir or move it{hint}'


def _require_different(what: str, values: Sequence, way_out: str = '') -> None:
    twice = sorted({value for value in values if list(values).count(value) > 1})
    if twice:
        raise ConfigError(f'{what}: {", ".join(map(str, twice))} given twice{way_out}')
    if not values:
        raise ConfigError(f'{what}: none given')


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise ConfigError(f'options after --: mmlape train: {message}')


def _train_options(extra: Sequence[str]) -> argparse.Namespace:
    """What ``mmlape train`` makes of the options after ``--``."""
    from mmlape.commands.train import add_arguments

    parser = _Parser(add_help=False)
    add_arguments(parser)
    options = parser.parse_args(['config', *extra])
    taken = [
        f'--{name.replace("_", "-")}' for name in OWN_OPTIONS if getattr(options, name) != parser.get_default(name)
    ]
    if taken:
        raise ConfigError(f'{", ".join(taken)} after --: the study sets it itself')
    return options
