"""Says at the start of a run what one step consists of, beside what the recipe's learning rate is for."""

import logging

from mmengine.hooks import Hook

from mmlape.engine.batch import batch_plan, plan_text
from mmlape.registry import HOOKS


def banner(cfg: dict, world_size: int, policy: str) -> tuple[str, str | None]:
    """The line about the batch and the policy, and a warning where results will not be the recipe's.

    Args:
        cfg: A configuration that :func:`mmlape.engine.batch.settle_batch` has gone over.
        world_size: Processes.
        policy: What it returned.
    """
    plan = batch_plan(cfg, world_size)
    total = plan['total_batch']
    line = f'{plan_text(plan)} (batch policy: {policy}); '
    base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    lr = (cfg['optim_wrapper'].get('optimizer') or {}).get('lr')
    if not base:
        return f'{line}the recipe does not say for how many its learning rate ({lr}) is', None
    line += f"the recipe's learning rate ({lr}) is for {base}"
    if policy == 'auto-scale-lr':
        return f'{line} and is multiplied by {total / base:g}', None
    if policy == 'allowed-mismatch':
        return line, (
            f'{total} images a step instead of {base}, with the learning rate for {base} (--allow-batch-mismatch): '
            "results will differ from the recipe's"
        )
    return line, None


@HOOKS.register_module()
class BannerHook(Hook):
    """Logs the banner, where to find what, and the seed."""

    priority = 'LOWEST'

    def before_train(self, runner) -> None:
        """After everything is built, before the first batch."""
        line, warning = banner(runner.cfg, runner.world_size, runner.record.fields['identity']['batch_policy'])
        runner.logger.info(f'{line}; seed {runner.seed}; {runner.work_dir}')
        if warning:
            runner.logger.log(logging.WARNING, warning)
