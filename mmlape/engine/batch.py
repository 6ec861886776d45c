"""How many images make one optimiser step, and what to do where that is not what the recipe is for.

A learning rate belongs to a total batch: processes x images a process x accumulation. Where that is another one than
the recipe's ``auto_scale_lr.base_batch_size``, training starts only after one of ``WAYS`` was chosen.
"""

import torch
from mmengine.config import Config

from mmlape.engine.schedule import stretch
from mmlape.errors import ConfigError

WAYS = ('auto-scale-lr', 'accumulate', 'allow-batch-mismatch')


def batch_plan(cfg: dict, world_size: int) -> dict[str, int]:
    """How many images make one optimiser step: processes x images a process x accumulation."""
    images = int(cfg['train_dataloader']['batch_size'])
    accumulation = int(cfg['optim_wrapper'].get('accumulative_counts', 1))
    return dict(
        world_size=world_size,
        images_per_process=images,
        accumulation=accumulation,
        total_batch=world_size * images * accumulation,
    )


def plan_text(plan: dict) -> str:
    """'4 GPUs x 2 images x 1 accumulated = 8 images a step'."""
    count = plan['world_size']
    unit, ending = ('GPU', 's') if torch.cuda.is_available() else ('CPU process', 'es')
    units = unit if count == 1 else unit + ending
    return (
        f'{count} {units} x {plan["images_per_process"]} images x {plan["accumulation"]} accumulated '
        f'= {plan["total_batch"]} images a step'
    )


def settle_batch(cfg: Config, world_size: int, way: str | None) -> str:
    """Makes sure that the total batch is the recipe's, or what was chosen instead.

    Args:
        cfg: Changed in place by 'auto-scale-lr' (which the runner carries out) and by 'accumulate', which accumulates
            over as many iterations as the recipe's batch needs and stretches what is counted in iterations.
        world_size: Processes.
        way: One of ``WAYS``, or None.

    Returns:
        One of :data:`mmlape.runs.identity.BATCH_POLICIES`.

    Raises:
        ConfigError: The batch is another one and no way was chosen; the message shows all three, computed. Or the
            chosen one is not possible.
    """
    plan = batch_plan(cfg, world_size)
    scale = cfg.get('auto_scale_lr') or {}
    base, total = scale.get('base_batch_size'), plan['total_batch']
    if not base:
        if way in ('auto-scale-lr', 'accumulate'):
            raise ConfigError(f'--{way}: {cfg.filename} does not say auto_scale_lr.base_batch_size')
        return 'unknown'
    if total == base:
        return 'recipe'
    if way == 'auto-scale-lr' or (way is None and scale.get('enable')):
        cfg.auto_scale_lr.enable = True
        return 'auto-scale-lr'
    scale['enable'] = False
    if way == 'allow-batch-mismatch':
        return 'allowed-mismatch'
    if way == 'accumulate':
        if base % total:
            raise ConfigError(f'--accumulate: {_no_multiple(base, plan)}')
        cfg.optim_wrapper.accumulative_counts = plan['accumulation'] * base // total
        stretch(cfg, base // total)
        return 'accumulation'
    raise ConfigError(_ways_out(cfg, plan, base))


def _no_multiple(base: int, plan: dict) -> str:
    return (
        f"the recipe's {base} images are no multiple of the {plan['total_batch']} that are there; "
        'train_dataloader.batch_size or the number of processes must change'
    )


def _ways_out(cfg: Config, plan: dict, base: int) -> str:
    factor, rest = divmod(base, plan['total_batch'])
    lr = (cfg.optim_wrapper.get('optimizer') or {}).get('lr')
    scaled = f'lr {lr:g} -> {lr * plan["total_batch"] / base:g}' if lr else 'scales the learning rate'
    if rest:
        accumulate = f'not possible here: {_no_multiple(base, plan)}'
    else:
        counts = plan['accumulation'] * factor
        length = cfg.train_cfg.get('max_iters')
        longer = f', and train_cfg.max_iters {length} -> {length * factor}' if length else ''
        accumulate = f'optim_wrapper.accumulative_counts={counts}{longer}: as many steps and images as the recipe has'
    return (
        f'{plan_text(plan)}, but the recipe is for {base} (auto_scale_lr.base_batch_size). Choose one:\n'
        f'  --auto-scale-lr         {scaled}\n'
        f'  --accumulate            {accumulate}\n'
        '  --allow-batch-mismatch  trains so, and says so in run.json and in every report'
    )
