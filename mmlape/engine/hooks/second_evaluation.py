"""Evaluate once more with a changed test pipeline, such as ImageNet at a second crop ratio."""

import copy

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop, autocast
from mmengine.runner.base_loop import BaseLoop

from mmlape.errors import ConfigError
from mmlape.registry import HOOKS


@HOOKS.register_module()
class SecondEvaluationHook(Hook):
    """Add the metrics of a second pass over the images to those of every test and of the last validation.

    The validations before the last one cost a pass each and choose the best checkpoint, by the config's own pipeline.
    The second pass sees the same weights, averaged ones too.

    Args:
        name: Put in front of the metrics: 'accuracy/top1' becomes '<name>/accuracy/top1'.
        changes: The arguments of transforms that change, ``{type: {argument: value}}``.
    """

    changes_results = False
    priority = 'HIGHEST'  # before the hooks that log and record the metrics, and before averaged weights are put back

    def __init__(self, name: str, changes: dict[str, dict]) -> None:
        self.name, self.changes = name, changes

    def before_run(self, runner) -> None:
        """Check that the pipelines have the transforms to change.

        Raises:
            ConfigError: One of them is not there.
        """
        for key in ('val_dataloader', 'test_dataloader'):
            if runner.cfg.get(key):
                self._changed(runner.cfg, key)

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Add the metrics at the end of training."""
        loop = runner.train_loop
        if isinstance(loop, IterBasedTrainLoop):
            last = loop.iter >= loop.max_iters
        else:
            last = loop.epoch >= loop.max_epochs
        if last and metrics is not None:
            metrics.update(self._evaluate(runner, runner.val_loop, 'val'))

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """Add the metrics of a test."""
        if metrics is not None:
            metrics.update(self._evaluate(runner, runner.test_loop, 'test'))

    def _changed(self, cfg: dict, key: str) -> dict:
        """Return a data loader's configuration with the changed pipeline; its workers end with the pass."""
        loader = copy.deepcopy(cfg[key])
        steps = loader['dataset'].get('pipeline') or []
        for kind, arguments in self.changes.items():
            matching = [step for step in steps if step['type'] == kind]
            if not matching:
                raise ConfigError(
                    f"SecondEvaluationHook '{self.name}': {key} has no transform {kind}; change the hook in "
                    'custom_hooks together with the pipeline, or remove it'
                )
            for step in matching:
                step.update(arguments)
        loader['persistent_workers'] = False
        return loader

    @torch.no_grad()
    def _evaluate(self, runner, loop: BaseLoop, split: str) -> dict[str, float]:
        loader = runner.build_dataloader(self._changed(runner.cfg, f'{split}_dataloader'), seed=runner.seed)
        evaluator = runner.build_evaluator(copy.deepcopy(runner.cfg[f'{split}_evaluator']))
        evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', None)
        runner.logger.info(f'evaluating again: {self.name}, {len(loader)} batches x {get_world_size()}')
        runner.model.eval()
        step = getattr(runner.model, f'{split}_step')
        for batch in loader:
            with autocast(enabled=loop.fp16):
                outputs = step(batch)
            evaluator.process(data_samples=outputs, data_batch=batch)
        return {f'{self.name}/{key}': value for key, value in evaluator.evaluate(len(loader.dataset)).items()}
