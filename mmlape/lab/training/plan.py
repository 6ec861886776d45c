"""The configuration of a run, settled once: what the trainer, the evaluator and a study all work from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from mmlape.errors import ConfigError, MissingCheckpointError
from mmlape.lab.config.config_file import config_name, name_types
from mmlape.lab.config.schedule import check_schedule, check_units, shorten, stretch
from mmlape.lab.config.watched_metrics import check_watched
from mmlape.lab.datasets.formats import iter_sources
from mmlape.lab.datasets.formats.base import DataSource
from mmlape.lab.extension import first_answer
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.failures import building
from mmlape.lab.runs.identity import checkpoint_keys, collect, is_missing
from mmlape.lab.runs.schema import Identity
from mmlape.lab.training.compiling import KEY, compile_mode
from mmlape.lab.training.frozen.hook import views_of
from mmlape.lab.training.optim import check_optimizer, set_amp

TRAIN_KEYS = ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper')


@dataclass(frozen=True)
class Batch:
    """The images of one optimiser step, to which a learning rate belongs."""

    world_size: int
    images_per_process: int
    accumulation: int

    @property
    def total(self) -> int:
        """Images of all processes and accumulated iterations."""
        return self.world_size * self.images_per_process * self.accumulation

    def __str__(self) -> str:
        """Return '4 GPUs x 2 images x 1 accumulated = 8 images a step'."""
        unit, plural = ('GPU', 's') if torch.cuda.is_available() else ('CPU process', 'es')
        return (
            f'{self.world_size} {unit}{plural if self.world_size > 1 else ""} x '
            f'{self.images_per_process} images x {self.accumulation} accumulated = {self.total} '
            'images a step'
        )


def apply_batch_policy(recipe: Recipe, world_size: int, policy: str | None) -> tuple[Batch, str]:
    """Make the total batch the recipe's, or what was chosen instead.

    Args:
        recipe: Its config is changed in place by 'auto-scale-lr' (which the runner carries out) and by 'accumulate',
            which accumulates over as many iterations as the recipe's batch needs and stretches what
            is counted in iterations.
        world_size: Number of processes.
        policy: 'auto-scale-lr', 'accumulate', 'allow-batch-mismatch', or None.

    Returns:
        The batch that is trained, and its policy: that one; without it 'recipe', or 'unknown' where
        the configuration names no ``base_batch_size``.

    Raises:
        ConfigError: The batch is not the recipe's and no policy was chosen; the message shows all
            three, computed. Or the chosen one is not possible.
    """
    cfg, base = recipe.cfg, recipe.base_batch
    images = _positive(cfg, 'train_dataloader.batch_size', recipe.loaders['train'].get('batch_size'))
    accumulation = recipe.wrapper.cfg.get('accumulative_counts', 1)
    batch = Batch(world_size, images, _positive(cfg, 'optim_wrapper.accumulative_counts', accumulation))
    if not base:
        if policy in ('auto-scale-lr', 'accumulate'):
            raise ConfigError(f'--{policy}: {cfg.filename} has no auto_scale_lr.base_batch_size')
        return batch, 'unknown'
    if batch.total == base:
        return batch, 'recipe'
    policy = policy or ('auto-scale-lr' if recipe.scales_rate else None)
    not_divisible = (
        f"the recipe's {base} images are no multiple of {batch.total}; change "
        'train_dataloader.batch_size or the number of processes'
    )
    if policy is None:
        raise ConfigError(_mismatch(recipe, batch, base, not_divisible))
    cfg.auto_scale_lr['enable'] = policy == 'auto-scale-lr'
    if policy == 'accumulate':
        if base % batch.total:
            raise ConfigError(f'--accumulate: {not_divisible}')
        factor = base // batch.total
        cfg.optim_wrapper.accumulative_counts = batch.accumulation * factor
        stretch(recipe, factor)
        batch = replace(batch, accumulation=batch.accumulation * factor)
    return batch, policy


def _positive(cfg: Config, key: str, value: Any) -> int:
    """Return the value of a key that is a whole number of at least 1; ConfigError for anything else."""
    if type(value) is not int or value < 1:
        raise ConfigError(f'{cfg.filename}: {key}={value!r} is no whole number of at least 1')
    return value


def _mismatch(recipe: Recipe, batch: Batch, base: int, not_divisible: str) -> str:
    """Say what each policy would do about a batch that is not the recipe's."""
    factor, rest = divmod(base, batch.total)
    lr, length = recipe.optimizer.cfg.get('lr'), recipe.loop.cfg.get('max_iters')
    scaled = f'lr {lr:g} -> {lr * batch.total / base:g}' if lr else 'scales the learning rate'
    longer = f', train_cfg.max_iters {length} -> {length * factor}' if length else ''
    counts = batch.accumulation * factor
    accumulate = f"optim_wrapper.accumulative_counts={counts}{longer}: the recipe's number of steps and images"
    if rest:
        accumulate = f'not possible: {not_divisible}'
    return (
        f'{batch}, but the recipe is for {base} (auto_scale_lr.base_batch_size). Choose one:\n  '
        f'--auto-scale-lr         {scaled}\n  --accumulate            {accumulate}\n  '
        '--allow-batch-mismatch  trains as it is; run.json and every report note it'
    )


@dataclass
class RunPlan:
    """What a run trains, and how, as its configuration and options describe it."""

    recipe: Recipe  # of the configuration that is trained, with precision, accumulation and schedule applied
    work_dir: Path  # an absolute path
    batch: Batch  # the images of one optimiser step
    batch_policy: str  # see `apply_batch_policy`
    seed: int | None  # None for that of the resumed run, or a random one
    sources: list[DataSource]  # the datasets of known format; they read and change parts of ``cfg``

    @property
    def cfg(self) -> Config:
        """The configuration that is trained."""
        return self.recipe.cfg

    @cached_property
    def identity(self) -> Identity:
        """See :func:`mmlape.lab.runs.identity.collect`.

        The checkpoints that training starts from are hashed once.
        """
        return collect(
            self.recipe, self.seed, self.batch.world_size, self.batch.total, self.batch_policy, compile_mode(self.cfg)
        )

    def require_weights(self, resumed: bool) -> None:
        """Raise MissingCheckpointError if weights to start from are not there; ``load_from`` is not if ``resumed``."""
        for key, path in checkpoint_keys(self.cfg):
            if is_missing(path) and not (resumed and key == 'load_from'):
                raise MissingCheckpointError(missing_weights(key, path))

    def banner(self) -> str:
        """Return the line about batch, policy and learning rate."""
        start = f'{self.batch} (batch policy: {self.batch_policy}); '
        base, lr = self.recipe.base_batch, self.recipe.optimizer.cfg.get('lr')
        if not base:
            return f'{start}the recipe does not say which batch its learning rate ({lr}) is for'
        effects = {
            'auto-scale-lr': f' and is multiplied by {self.batch.total / base:g}',
            'allow-batch-mismatch': ": results will differ from the recipe's",
        }
        return f"{start}the recipe's learning rate ({lr}) is for {base}{effects.get(self.batch_policy, '')}"


def plan_run(
    cfg: Config,
    world_size: int,
    work_dir: str | Path | None = None,
    seed: int | None = None,
    amp: str | None = None,
    batch: str | None = None,
    share: float = 1,
    compile: str | None = None,
) -> RunPlan:
    """Apply the options of a run to its configuration, in place.

    See :func:`mmlape.lab.training.trainer.train`.

    Raises:
        ConfigError: The configuration cannot be trained like this.
    """
    require_keys(cfg, TRAIN_KEYS, 'trained')
    name_types(cfg)
    work_dir = default_work_dir(cfg, work_dir)
    if compile:
        cfg[KEY] = compile
    recipe = Recipe.of(cfg)
    if amp:
        set_amp(recipe, amp)
    shorten(recipe, share)
    for key, check in CHECKS:
        with building(cfg, key):
            check(recipe)
    images, policy = apply_batch_policy(recipe, world_size, batch)
    seed = recipe.randomness.get('seed') if seed is None else seed
    return RunPlan(recipe, work_dir, images, policy, seed, list(iter_sources(cfg)))


def _check_processes(recipe: Recipe) -> None:
    distributed = recipe.cfg.get('distributed', 'ddp')
    if distributed != 'ddp':
        raise ConfigError(
            f'distributed={distributed!r}: several processes train by DDP alone, so remove it; to save memory '
            'freeze the backbone, or set model.backbone.with_cp=True'
        )


def _check_saving(recipe: Recipe) -> None:
    if recipe.default_hooks['checkpoint'].cfg.get('out_dir'):
        raise ConfigError(
            'default_hooks.checkpoint.out_dir: checkpoints are saved in the work dir, where '
            '--resume looks for them; remove it, and give --work-dir'
        )


CHECKS: tuple[tuple[str, Callable[[Recipe], object]], ...] = (
    ('train_cfg', check_units),
    ('val_evaluator', check_watched),
    ('param_scheduler', check_schedule),
    ('default_hooks', _check_saving),
    ('optim_wrapper', check_optimizer),
    ('distributed', _check_processes),
    (KEY, lambda recipe: compile_mode(recipe.cfg)),
    ('cache_features', lambda recipe: views_of(recipe.cfg)),
)
"""All that is checked of a recipe before anything is written, each with the key that a wrong value has."""


def missing_weights(key: str, path: str) -> str:
    """Return the message about weights to start from that are not there, with what makes them."""
    source = first_answer(lambda one: one.weights_source(path))
    made = f' ({source})' if source else ''
    return f'{key}={path}: there is no such file{made}; give one by --cfg-options {key}=FILE'


def require_keys(cfg: Config, keys: tuple[str, ...], purpose: str) -> None:
    """Raise ConfigError if a configuration lacks a part that its purpose ('trained', 'tested') needs."""
    # `test_cfg = dict()` is MMEngine's own loop
    missing = [key for key in keys if cfg.get(key) is None]
    if missing:
        raise ConfigError(f'{cfg.filename} cannot be {purpose}: it has no {", ".join(missing)}')


def default_work_dir(cfg: Config, work_dir: str | Path | None) -> Path:
    """Return the given work dir, else the configuration's own, else ``work_dirs/<name of the configuration>``."""
    return Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / config_name(cfg)).absolute()
