"""Log at the start of a run what one step consists of, and what the recipe's learning rate is for."""

import logging

from mmengine.hooks import Hook

from mmlape.engine.plan import RunPlan
from mmlape.registry import HOOKS


def banner(plan: RunPlan) -> tuple[str, str | None]:
    """Return the line about batch and policy, and a warning if results will differ from the recipe's."""
    total = plan.batch.total
    line = f'{plan.batch} (batch policy: {plan.batch_policy}); '
    base = (plan.cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    lr = (plan.cfg.optim_wrapper.get('optimizer') or {}).get('lr')
    if not base:
        return f'{line}the recipe does not say which batch its learning rate ({lr}) is for', None
    line += f"the recipe's learning rate ({lr}) is for {base}"
    if plan.batch_policy == 'auto-scale-lr':
        return f'{line} and is multiplied by {total / base:g}', None
    if plan.batch_policy == 'allow-batch-mismatch':
        return line, (
            f'{total} images a step instead of {base}, with the learning rate for {base} (--allow-batch-mismatch): '
            "results will differ from the recipe's"
        )
    return line, None


@HOOKS.register_module()
class BannerHook(Hook):
    """Log the banner, the seed and the work dir."""

    changes_results = False
    priority = 'LOWEST'

    def before_train(self, runner) -> None:
        """Log when everything is built, before the first batch."""
        line, warning = banner(runner.plan)
        runner.logger.info(f'{line}; seed {runner.seed}; {runner.work_dir}')
        if warning:
            runner.logger.log(logging.WARNING, warning)
