"""Hooks of this package.

One that only observes, seeds or stops has ``changes_results = False``: it is no part of a run's
identity (see :func:`mmlape.lab.runs.identity.settings`).
"""

from mmlape.lab.engine.compiling import CompileBackboneHook
from mmlape.lab.engine.frozen.hook import CachedFeaturesHook
from mmlape.lab.engine.hooks.checkpoint import CheckpointHook, KeptEMAHook, StopHook
from mmlape.lab.engine.hooks.evaluation import (
    EarlyStoppingHook,
    PerClassHook,
    SavePredictionsHook,
    SecondEvaluationHook,
)
from mmlape.lab.engine.hooks.gradient_norm import GradientNormHook
from mmlape.lab.engine.hooks.run import AccumulationHook, NaNGuardHook, ReseedHook, RunRecordHook, cause_of_stop
from mmlape.lab.runs.identity import GONE

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


def install(cfg: dict, *names: str) -> None:
    """Add hooks of this package to ``cfg.custom_hooks``, each only if the configuration does not have it yet."""
    hooks = [hook for hook in cfg.get('custom_hooks') or [] if _name(hook) not in GONE]
    present = {_name(hook) for hook in hooks}
    hooks += [dict(type=f'mmlape.{name}') for name in names if name not in present]
    cfg['custom_hooks'] = hooks
    default = cfg.setdefault('default_hooks', {})
    checkpoint = default.get('checkpoint') or dict(type='CheckpointHook', interval=1)
    if _name(checkpoint) == 'CheckpointHook':
        checkpoint['type'] = 'mmlape.CheckpointHook'
    default['checkpoint'] = checkpoint


def _name(hook: dict) -> str:
    return str(hook.get('type')).rpartition('.')[2]
