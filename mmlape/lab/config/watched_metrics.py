"""Metrics that choose the best checkpoint, end a run or lower its rate: measured ones, and by the rule that fits.

MMEngine says so at the first validation, which may be hours away, or never.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from mmengine.hooks import EarlyStoppingHook
from mmengine.optim.scheduler import ReduceOnPlateauParamScheduler

from mmlape.errors import ConfigError
from mmlape.lab.recipe import Part, Recipe

_OF_IOU = {'mIoU': ('mIoU', 'mAcc'), 'mDice': ('mDice', 'mAcc'), 'mFscore': ('mFscore', 'mPrecision', 'mRecall')}
_OF_COCO = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')


def check_watched(recipe: Recipe) -> None:
    """Check the metrics of ``save_best``, of MMEngine's EarlyStoppingHook and of ReduceOnPlateau schedulers.

    Raises:
        ConfigError: There is no validation, it has no such metric, or the rule is that of a loss.
    """
    of_each = [_names_of(evaluator) for evaluator in recipe.evaluators]
    # none if one of the evaluators may have others
    names = [name for names in of_each for name in names] if all(of_each) else []
    for key, metric, rule in _watched(recipe):
        if not (recipe.loaders['val'] and recipe.cfg.get('val_evaluator')):
            raise ConfigError(f'{key}={metric}: there is no validation, so it has no effect: set one, or remove it')
        if metric == 'auto' or not names:
            continue
        require_measured(key, metric, names)
        if rule == 'less':
            fix = f"{key.rpartition('.')[0]}.rule='greater'"
            raise ConfigError(f"{key}={metric} with the rule 'less': more of it is better, so set {fix}")


def require_measured(key: str, metric: str, measured: Iterable[str]) -> None:
    """Raise ConfigError unless a metric that a key names is among those of an evaluation."""
    names = list(measured)
    if metric not in names:
        close = difflib.get_close_matches(metric, names, n=2)
        hint = f'did you mean {" or ".join(close)}? ' if close else ''
        raise ConfigError(f'{key}={metric}: val_evaluator has no such metric: {hint}It has {", ".join(names)}')


def _watched(recipe: Recipe) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, metric and rule of what watches a metric."""
    checkpoint = recipe.default_hooks['checkpoint'].cfg
    best, rules = checkpoint.get('save_best'), checkpoint.get('rule')
    for index, metric in enumerate([best] if isinstance(best, str) else best or []):
        rule = rules[index % len(rules)] if isinstance(rules, list | tuple) and rules else rules
        yield 'default_hooks.checkpoint.save_best', metric, rule
    for hook in recipe.hooks:
        if hook.is_a(EarlyStoppingHook) and 'monitor' in hook.cfg:
            yield f'{hook.key}.monitor', hook.cfg['monitor'], hook.cfg.get('rule')
    for part in recipe.schedulers:
        if part.is_a(ReduceOnPlateauParamScheduler):
            # what MMEngine takes by default
            yield f'{part.key}.monitor', part.cfg.get('monitor', 'loss'), part.cfg.get('rule', 'less')


def _names_of(part: Part) -> list[str]:
    """Return the metrics of MMSegmentation's IoU, MMDetection's COCO AP or MMPretrain's accuracy; none of others."""
    evaluator, prefix = part.cfg, part.cfg.get('prefix')
    names: list[str] = []
    if part.path in ('mmseg.IoUMetric', 'mmlape.IoUMetric'):
        names = [
            'aAcc',
            *(key for measure in _listed(evaluator, 'iou_metrics', 'mIoU') for key in _OF_IOU.get(measure, ())),
        ]
    elif part.path in ('mmdet.CocoMetric', 'mmlape.CocoMetric') and not evaluator.get('classwise'):
        prefix, measures = prefix or 'coco', _listed(evaluator, 'metric', 'bbox')
        items = evaluator.get('metric_items') or _OF_COCO
        if set(measures) <= {'bbox', 'segm'}:
            names = [f'{measure}_{item}' for measure in measures for item in items]
    elif part.path == 'mmpretrain.Accuracy' and not isinstance(evaluator.get('thrs'), list | tuple):
        prefix, names = prefix or 'accuracy', [f'top{k}' for k in _listed(evaluator, 'topk', 1)]
    return [f'{prefix}/{name}' if prefix else name for name in dict.fromkeys(names)]


def _listed(evaluator: dict, key: str, default: Any) -> list:
    value = evaluator.get(key, default)
    return list(value) if isinstance(value, list | tuple) else [value]
