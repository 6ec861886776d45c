"""Settings that would do nothing, or something else than they say: errors before the first step.

MMEngine takes them in silence, or fails at the first validation.
"""

import difflib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from mmengine.config import Config
from mmengine.dataset import InfiniteSampler
from mmengine.hooks import EarlyStoppingHook, EMAHook
from mmengine.registry import OPTIMIZERS
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from mmlape.errors import ConfigError, require_choice
from mmlape.lab.engine.keys import find_classes, iter_dicts
from mmlape.lab.engine.schedule import schedulers

MAX_WORKERS = max(128, 4 * (os.cpu_count() or 1))
"""More processes of one data loader are a mistake: each takes memory, and none gets a core."""


_VALIDATION = ('val_dataloader', 'val_cfg', 'val_evaluator')
_TEST = ('test_dataloader', 'test_cfg', 'test_evaluator')


def check_effects(cfg: Config) -> None:
    """Check that what a configuration counts, chooses and watches exists in its run.

    Raises:
        ConfigError: It does not; the message names the key and the fix.
    """
    counts = _loop_counts(cfg)
    if counts:
        _check_counts(cfg, counts)
    _check_intervals(cfg)
    _check_validation(cfg, 'max_epochs' if counts == 'epochs' else 'max_iters')
    _check_loaders(cfg)
    _check_samplers(cfg, counts)
    _check_watched(cfg)
    _check_hooks(cfg, counts)
    _check_rates(cfg)
    _check_optimizer(cfg)


def _loop_counts(cfg: Config) -> str | None:
    """Return what the loop of training counts, 'epochs' or 'iterations'; None if that is not known."""
    loop, scope = cfg.train_cfg, cfg.get('default_scope') or 'mmengine'
    if 'type' not in loop:
        return 'epochs' if loop.get('by_epoch') else 'iterations'
    built = [one for one in find_classes(loop['type'], scope) if isinstance(one, type)]
    if any(issubclass(one, EpochBasedTrainLoop) for one in built):
        return 'epochs'
    return 'iterations' if any(issubclass(one, IterBasedTrainLoop) for one in built) else None


def _check_counts(cfg: Config, counts: str) -> None:
    """Check that schedulers and hooks count what the loop of training counts."""
    for key, scheduler in schedulers(cfg):
        by_epoch = scheduler.get('by_epoch', True)
        name = f'{key} ({scheduler.get("type")})'
        if counts == 'iterations' and by_epoch and not scheduler.get('convert_to_iter_based'):
            raise ConfigError(
                f'{name} counts epochs{_by_default(scheduler)}, but train_cfg counts iterations, so '
                f'it would never change its value: set {key}.by_epoch=False, and give begin, end '
                'and milestones in iterations'
            )
        if counts == 'epochs' and not by_epoch and _is_in_epochs(scheduler, cfg.train_cfg):
            raise ConfigError(
                f'{name} counts iterations (by_epoch=False), but its numbers are those of the '
                f'{cfg.train_cfg.get("max_epochs")} epochs in train_cfg, so it would be over within '
                f'the first: set {key}.by_epoch=True'
            )
    if counts == 'epochs':
        return
    hooks = cfg.get('default_hooks') or {}
    checkpoint = hooks.get('checkpoint') or {}
    if checkpoint.get('by_epoch', True):
        raise ConfigError(
            f'default_hooks.checkpoint counts epochs{_by_default(checkpoint)}, but train_cfg counts '
            'iterations, so no checkpoint would be written on the way: set '
            'default_hooks.checkpoint.by_epoch=False, and give its interval in iterations'
        )
    for key, node, name in (
        ('default_hooks.logger', hooks.get('logger'), 'log_metric_by_epoch'),
        ('log_processor', cfg.get('log_processor'), 'by_epoch'),
    ):
        if (node or {}).get(name):
            raise ConfigError(
                f'{key}.{name}={node[name]}, but train_cfg counts iterations, so the log would have '
                f'all of them in one epoch: set {key}.{name}=False'
            )


def _by_default(node: dict) -> str:
    return '' if 'by_epoch' in node else ' (by_epoch=True, the default)'


def _is_in_epochs(scheduler: dict, loop: dict) -> bool:
    """Return whether a scheduler that counts iterations has the numbers of a run's epochs."""
    epochs = loop.get('max_epochs')
    milestones = scheduler.get('milestones')
    ends = [scheduler.get(name) for name in ('end', 'T_max', 'total_steps')]
    return epochs is not None and (epochs in ends or (bool(milestones) and max(milestones) < epochs))


def _check_validation(cfg: Config, length: str) -> None:
    """Check that validations have all their parts and that one is due in the run, if there are any."""
    for keys, what in ((_VALIDATION, 'a validation'), (_TEST, 'a test')):
        parts = {key: cfg.get(key) is not None for key in keys}
        if len(set(parts.values())) > 1:
            absent = ', '.join(key for key, given in parts.items() if not given)
            present = ', '.join(key for key, given in parts.items() if given)
            raise ConfigError(f'there is no {absent} beside {present}: {what} needs all of them')
    if not _validates(cfg):
        return
    begin, end = cfg.train_cfg.get('val_begin', 1), cfg.train_cfg.get(length)
    # one behind the end is MMDetection's way to say never
    if isinstance(end, int) and begin > end + 1:
        raise ConfigError(
            f'train_cfg.val_begin={begin} is behind train_cfg.{length}={end}, so there would be no validation'
        )


def _validates(cfg: Config) -> bool:
    return all(cfg.get(key) is not None for key in _VALIDATION)


def _check_intervals(cfg: Config) -> None:
    for name in ('max_iters', 'max_epochs', 'val_interval'):
        value = cfg.train_cfg.get(name, 1)
        if not isinstance(value, int | float) or value < 1 or value != int(value):
            raise ConfigError(f'train_cfg.{name}={value!r} is no whole number of at least 1')
    for begin, interval in cfg.train_cfg.get('dynamic_intervals') or ():
        if interval < 1:
            raise ConfigError(
                f'train_cfg.dynamic_intervals has the interval {interval}, from {begin} on: it is '
                'no whole number of at least 1'
            )
    for key, hook in _hooks(cfg):
        interval = hook.get('interval')
        # -1 is MMEngine's way to say never
        if isinstance(interval, int | float) and interval < 1 and interval != -1:
            raise ConfigError(
                f'{key}.interval={interval} is no whole number of at least 1, so the hook would never act'
            )


def _hooks(cfg: Config) -> Iterator[tuple[str, dict]]:
    """Yield the hooks of a configuration by their dotted keys."""
    named = {f'default_hooks.{key}': hook for key, hook in (cfg.get('default_hooks') or {}).items()}
    listed = {f'custom_hooks.{i}': hook for i, hook in enumerate(cfg.get('custom_hooks') or [])}
    for key, hook in {**named, **listed}.items():
        if isinstance(hook, dict):
            yield key, hook


def _check_loaders(cfg: Config) -> None:
    for split in ('train', 'val', 'test'):
        loader = cfg.get(f'{split}_dataloader')
        workers = loader.get('num_workers', 0) if isinstance(loader, dict) else 0
        if type(workers) is not int or not 0 <= workers <= MAX_WORKERS:
            raise ConfigError(
                f'{split}_dataloader.num_workers={workers!r}: give a whole number of processes, at '
                f'most {MAX_WORKERS} here; 0 loads in the training process'
            )


def _check_samplers(cfg: Config, counts: str | None) -> None:
    """Check that what ends with its data is not given them without end."""
    scope = cfg.get('default_scope') or 'mmengine'
    for split, unit in (('train', 'epoch'), ('val', 'validation'), ('test', 'test')):
        loader = cfg.get(f'{split}_dataloader')
        sampler = loader.get('sampler') if isinstance(loader, dict) else None
        if not isinstance(sampler, dict) or (split == 'train' and counts != 'epochs'):
            continue
        built = [one for one in find_classes(sampler.get('type'), scope) if isinstance(one, type)]
        if any(issubclass(one, InfiniteSampler) for one in built):
            raise ConfigError(
                f'{split}_dataloader.sampler ({sampler["type"]}) has no end, so the first {unit} '
                f"would have none: set {split}_dataloader.sampler.type='DefaultSampler'"
            )


def _check_hooks(cfg: Config, counts: str | None) -> None:
    """Check numbers that MMEngine reads after the start: of checkpoints, averages of weights, an early stop."""
    scope = cfg.get('default_scope') or 'mmengine'
    unit, length = ('epoch', 'max_epochs') if counts == 'epochs' else ('iter', 'max_iters')
    end = cfg.train_cfg.get(length)
    saves = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    by_epoch, interval = saves.get('by_epoch', True), saves.get('interval', -1)
    is_late = end and by_epoch == (counts == 'epochs') and interval > end
    is_last = saves.get('save_last', True) or saves.get('save_best')
    if not is_last and (interval == -1 or is_late):
        raise ConfigError(
            f'default_hooks.checkpoint.interval={interval} and save_last=False, so no checkpoint of '
            f'the {end} {unit}s would be written: set save_last=True, or a shorter interval'
        )
    for key, hook in _hooks(cfg):
        built = [one for one in find_classes(hook.get('type'), scope) if isinstance(one, type)]
        if any(issubclass(one, EarlyStoppingHook) for one in built):
            for name in ('patience', 'min_delta', 'stopping_threshold'):
                value = hook.get(name)
                if value is not None and type(value) not in (int, float):
                    raise ConfigError(f'{key}.{name}={value!r} is no number')
            if scope == 'mmdet' and 'mAP' in str(hook.get('monitor')) and 'min_delta' not in hook:
                raise ConfigError(
                    f'{key} (EarlyStoppingHook): min_delta is 0.1 by default, which is ten points of '
                    f'{hook["monitor"]}, so the run would end after {hook.get("patience", 5)} '
                    f'validations with smaller steps: set {key}.min_delta=0.001, for example'
                )
        if any(issubclass(one, EMAHook) for one in built):
            momentum, begin = hook.get('momentum', 0.5), hook.get(f'begin_{unit}', 0)
            if not isinstance(momentum, float) or not 0 < momentum < 1:
                raise ConfigError(f'{key}.momentum={momentum!r} is not between 0 and 1')
            if end and begin > end:
                raise ConfigError(
                    f'{key}.begin_{unit}={begin} is behind train_cfg.{length}={end}, so there would be no average'
                )
            if counts == 'iterations' and hook.get('begin_epoch'):
                raise ConfigError(
                    f'{key}.begin_epoch={hook["begin_epoch"]}, but train_cfg counts iterations: give {key}.begin_iter'
                )


def _check_watched(cfg: Config) -> None:
    """Check that a metric which chooses the best checkpoint, or ends training, is one of the evaluator's."""
    names = _metric_names(cfg) if _validates(cfg) else []
    for key, metric, rule in _watched(cfg):
        require_choice(f'{key.rpartition(".")[0]}.rule', rule, (None, 'greater', 'less'))
        if not _validates(cfg):
            raise ConfigError(
                f'{key}={metric}: there is no validation, so it has no effect: set '
                f'{", ".join(_VALIDATION)}, or remove it'
            )
        if metric != 'auto' and names:
            require_measured(key, metric, names)
            if rule == 'less':
                raise ConfigError(
                    f"{key}={metric} with the rule 'less': more of it is better, so set "
                    f"{key.rpartition('.')[0]}.rule='greater'"
                )


def require_measured(key: str, metric: str, names: Iterable[str]) -> None:
    """Raise ConfigError unless a metric is among those of an evaluation, planned or made."""
    names = list(names)
    if metric in names:
        return
    close = difflib.get_close_matches(metric, names, n=2, cutoff=0.6)
    hint = f'did you mean {" or ".join(close)}? ' if close else ''
    raise ConfigError(f'{key}={metric}: val_evaluator has no such metric: {hint}It has {", ".join(names)}')


def _watched(cfg: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, metric and rule of what watches a metric."""
    scope = cfg.get('default_scope') or 'mmengine'
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    best = checkpoint.get('save_best')
    rules = checkpoint.get('rule')
    for index, metric in enumerate([best] if isinstance(best, str) else best or []):
        rule = rules[index % len(rules)] if isinstance(rules, list | tuple) and rules else rules
        yield 'default_hooks.checkpoint.save_best', metric, rule
    for key, hook in _hooks(cfg):
        built = [one for one in find_classes(hook.get('type'), scope) if isinstance(one, type)]
        if any(issubclass(one, EarlyStoppingHook) for one in built) and 'monitor' in hook:
            yield f'{key}.monitor', hook['monitor'], hook.get('rule')
    for key, scheduler in schedulers(cfg):
        if 'ReduceOnPlateau' in str(scheduler.get('type')):
            # what MMEngine takes by default
            yield f'{key}.monitor', scheduler.get('monitor', 'loss'), scheduler.get('rule', 'less')


def _check_optimizer(cfg: Config) -> None:
    """Check that the optimiser exists: MMEngine reads the arguments of None before it says that it does not."""
    name = (cfg.optim_wrapper.get('optimizer') or {}).get('type')
    if isinstance(name, str) and not find_classes(name, cfg.get('default_scope') or 'mmengine'):
        close = difflib.get_close_matches(name, OPTIMIZERS.module_dict, n=2)
        hint = f': did you mean {" or ".join(close)}?' if close else ''
        raise ConfigError(f'optim_wrapper.optimizer.type={name}: there is no such optimiser{hint}')


def _check_rates(cfg: Config) -> None:
    for key, node in iter_dicts(cfg.model, 'model'):
        rate = node.get('drop_path_rate', 0)
        if not isinstance(rate, int | float) or not 0 <= rate < 1:
            raise ConfigError(f'{key}.drop_path_rate={rate!r}: give a share of at least 0 and below 1')


def _metric_names(cfg: Config) -> list[str]:
    """Return the names of all metrics of the validation; none if one of the evaluators may have others."""
    evaluators = cfg.get('val_evaluator') or []
    if isinstance(evaluators, dict):
        evaluators = evaluators.get('metrics', [evaluators])
    names: list[str] = []
    for evaluator in evaluators if isinstance(evaluators, list | tuple) else [evaluators]:
        found = _names_of(evaluator) if isinstance(evaluator, dict) else []
        if not found:
            return []
        names += found
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ConfigError(
            f'the metrics of val_evaluator have {", ".join(twice)} more than once: give one of them '
            'a prefix, as in prefix="second"'
        )
    return names


_OF_IOU = {'mIoU': ('mIoU', 'mAcc'), 'mDice': ('mDice', 'mAcc'), 'mFscore': ('mFscore', 'mPrecision', 'mRecall')}
_OF_COCO = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')


def _names_of(evaluator: dict) -> list[str]:
    """Return the metrics of MMSegmentation's IoU, MMDetection's COCO AP or MMPretrain's accuracy; none of others."""
    name, prefix = str(evaluator.get('type')).rpartition('.')[2], evaluator.get('prefix')
    names: list[str] = []
    if name == 'IoUMetric':
        measures = evaluator.get('iou_metrics', ['mIoU'])
        measures = [measures] if isinstance(measures, str) else measures
        names = ['aAcc', *(key for measure in measures for key in _OF_IOU.get(measure, ()))]
    elif name == 'CocoMetric' and not evaluator.get('classwise'):
        prefix = prefix or 'coco'
        measures = evaluator.get('metric', 'bbox')
        measures = [measures] if isinstance(measures, str) else measures
        items = evaluator.get('metric_items') or _OF_COCO
        if set(measures) <= {'bbox', 'segm'}:
            names = [f'{measure}_{item}' for measure in measures for item in items]
    elif name == 'Accuracy' and not isinstance(evaluator.get('thrs'), list | tuple):
        prefix = prefix or 'accuracy'
        topk = evaluator.get('topk', (1,))
        names = [f'top{k}' for k in ([topk] if isinstance(topk, int) else topk)]
    return [f'{prefix}/{one}' if prefix else one for one in dict.fromkeys(names)]
