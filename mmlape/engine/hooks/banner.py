"""Says at the start of a run what one step consists of, beside what the recipe's learning rate is for."""

import logging

import torch
from mmengine.hooks import Hook

from mmlape.registry import HOOKS


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


def banner(cfg: dict, world_size: int) -> tuple[str, str | None]:
    """The line about the batch, and a warning where the recipe's learning rate is for another one."""
    plan = batch_plan(cfg, world_size)
    total, gpu = plan['total_batch'], torch.cuda.is_available()
    unit = ('GPU' if gpu else 'CPU process') + ('' if world_size == 1 else 's' if gpu else 'es')
    line = (
        f'{world_size} {unit} x {plan["images_per_process"]} images x {plan["accumulation"]} accumulated '
        f'= {total} images a step; '
    )
    scale = cfg.get('auto_scale_lr') or {}
    base, lr = scale.get('base_batch_size'), (cfg['optim_wrapper'].get('optimizer') or {}).get('lr')
    if not base:
        return f'{line}the recipe does not say for how many its learning rate ({lr}) is', None
    line += f"the recipe's learning rate ({lr}) is for {base}"
    if base == total:
        return line, None
    if scale.get('enable'):
        return f'{line} and is multiplied by {total / base:g}', None
    warning = (
        f'{total} images a step instead of {base}, with the learning rate for {base}: results will differ from the '
        f"recipe's. --auto-scale-lr multiplies the learning rate by {total / base:g}; "
        'optim_wrapper.accumulative_counts or train_dataloader.batch_size changes the number of images'
    )
    return line, warning


@HOOKS.register_module()
class BannerHook(Hook):
    """Logs the banner, where to find what, and the seed."""

    priority = 'LOWEST'

    def before_train(self, runner) -> None:
        """After everything is built, before the first batch."""
        line, warning = banner(runner.cfg, runner.world_size)
        runner.logger.info(f'{line}; seed {runner.seed}; {runner.work_dir}')
        if warning:
            runner.logger.log(logging.WARNING, warning)
