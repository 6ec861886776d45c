"""Hooks of this package.

One that only observes, seeds or stops has ``changes_results = False``: it is no part of a run's
identity (see :func:`mmlape.lab.runs.identity.settings`).
"""

from mmengine.hooks import CheckpointHook as MMEngineCheckpointHook

from mmlape.lab.recipe import Recipe
from mmlape.lab.training.compiling import CompileBackboneHook
from mmlape.lab.training.frozen.hook import CachedFeaturesHook
from mmlape.lab.training.hooks.checkpoint import CheckpointHook, KeptEMAHook, StopHook
from mmlape.lab.training.hooks.evaluation import (
    EarlyStoppingHook,
    PerClassHook,
    SavePredictionsHook,
    SecondEvaluationHook,
)
from mmlape.lab.training.hooks.gradient_norm import GradientNormHook
from mmlape.lab.training.hooks.run import AccumulationHook, NaNGuardHook, ReseedHook, RunRecordHook, cause_of_stop

ALWAYS = (
    'AccumulationHook', 'NaNGuardHook', 'PerClassHook', 'ReseedHook',  # before MMEngine's
    'CompileBackboneHook',  # among those that log, before the rates change and a checkpoint is saved
    'RunRecordHook', 'StopHook',  # behind all
)  # fmt: skip
"""Hooks of every training run, in the order in which their priorities call them."""

__all__ = [
    'AccumulationHook',
    'CachedFeaturesHook',
    'CheckpointHook',
    'CompileBackboneHook',
    'EarlyStoppingHook',
    'GradientNormHook',
    'KeptEMAHook',
    'NaNGuardHook',
    'PerClassHook',
    'ReseedHook',
    'RunRecordHook',
    'SavePredictionsHook',
    'SecondEvaluationHook',
    'StopHook',
    'cause_of_stop',
    'install',
]


def install(recipe: Recipe, *names: str) -> None:
    """Add hooks of this package to ``custom_hooks`` of a config, each only if it does not have it yet."""
    hooks = [*(recipe.cfg.get('custom_hooks') or [])]
    for name in names:
        if not any(part.is_a(globals()[name]) for part in recipe.custom_hooks):
            hooks.append(dict(type=f'mmlape.{name}'))
    recipe.cfg['custom_hooks'] = hooks
    checkpoint = recipe.default_hooks['checkpoint']
    options = checkpoint.cfg or dict(type='CheckpointHook', interval=1)
    if checkpoint.cls is MMEngineCheckpointHook:
        options['type'] = 'mmlape.CheckpointHook'
    recipe.cfg.setdefault('default_hooks', {})['checkpoint'] = options
