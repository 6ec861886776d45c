"""The total batch of a run, and what to do where it is not the recipe's.

A learning rate belongs to a total batch: processes x images per process x accumulation. Where that differs from the
recipe's ``auto_scale_lr.base_batch_size``, training starts only after one of ``POLICIES`` was chosen.
"""

from dataclasses import dataclass, replace

import torch
from mmengine.config import Config

from mmlape.engine.schedule import stretch
from mmlape.errors import ConfigError

POLICIES = ('auto-scale-lr', 'accumulate', 'allow-batch-mismatch')
"""The batch policies that are options of ``mmlape train``. Without one the policy is 'recipe', or 'unknown' where the
configuration names no ``base_batch_size``."""


@dataclass(frozen=True)
class Batch:
    """The images of one optimiser step."""

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
            f'{self.world_size} {unit}{plural if self.world_size > 1 else ""} x {self.images_per_process} images x '
            f'{self.accumulation} accumulated = {self.total} images a step'
        )


def apply_batch_policy(cfg: Config, world_size: int, policy: str | None) -> tuple[Batch, str]:
    """Make the total batch the recipe's, or what was chosen instead.

    Args:
        cfg: Changed in place by 'auto-scale-lr' (which the runner carries out) and by 'accumulate', which accumulates
            over as many iterations as the recipe's batch needs and stretches what is counted in iterations.
        world_size: Number of processes.
        policy: One of ``POLICIES``, or None.

    Returns:
        The batch that is trained, and its policy.

    Raises:
        ConfigError: The batch is not the recipe's and no policy was chosen; the message shows all three, computed. Or
            the chosen one is not possible.
    """
    accumulation = int(cfg.optim_wrapper.get('accumulative_counts', 1))
    batch = Batch(world_size, int(cfg.train_dataloader.batch_size), accumulation)
    scale = cfg.get('auto_scale_lr') or {}
    base = scale.get('base_batch_size')
    if not base:
        if policy in ('auto-scale-lr', 'accumulate'):
            raise ConfigError(f'--{policy}: {cfg.filename} has no auto_scale_lr.base_batch_size')
        return batch, 'unknown'
    if batch.total == base:
        return batch, 'recipe'
    policy = policy or ('auto-scale-lr' if scale.get('enable') else None)
    if policy is None:
        raise ConfigError(_mismatch(cfg, batch, base))
    scale['enable'] = policy == 'auto-scale-lr'
    if policy == 'accumulate':
        if base % batch.total:
            raise ConfigError(f'--accumulate: {_not_divisible(base, batch)}')
        factor = base // batch.total
        cfg.optim_wrapper.accumulative_counts = batch.accumulation * factor
        stretch(cfg, factor)
        batch = replace(batch, accumulation=batch.accumulation * factor)
    return batch, policy


def _not_divisible(base: int, batch: Batch) -> str:
    return (
        f"the recipe's {base} images are no multiple of {batch.total}; change train_dataloader.batch_size or the "
        'number of processes'
    )


def _mismatch(cfg: Config, batch: Batch, base: int) -> str:
    factor, rest = divmod(base, batch.total)
    lr = (cfg.optim_wrapper.get('optimizer') or {}).get('lr')
    scaled = f'lr {lr:g} -> {lr * batch.total / base:g}' if lr else 'scales the learning rate'
    if rest:
        accumulate = f'not possible: {_not_divisible(base, batch)}'
    else:
        length = cfg.train_cfg.get('max_iters')
        longer = f', train_cfg.max_iters {length} -> {length * factor}' if length else ''
        counts = batch.accumulation * factor
        accumulate = f"optim_wrapper.accumulative_counts={counts}{longer}: the recipe's number of steps and images"
    return (
        f'{batch}, but the recipe is for {base} (auto_scale_lr.base_batch_size). Choose one:\n'
        f'  --auto-scale-lr         {scaled}\n'
        f'  --accumulate            {accumulate}\n'
        '  --allow-batch-mismatch  trains as it is; run.json and every report note it'
    )
