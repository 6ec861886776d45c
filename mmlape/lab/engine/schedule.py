"""The length of a run and everything counted along it: checked before the run starts, stretched, shortened."""

import math
from collections.abc import Callable, Iterable

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.optim import _ParamScheduler

from mmlape.errors import ConfigError
from mmlape.lab.registry import PARAM_SCHEDULERS

_SPANS = ('warmup', 'T_max', 'total_steps', 'step_size', 'milestones', 'periods')
"""Arguments of schedulers that are counted from their ``begin``."""
_UNCHANGED = (
    'ConstantLR', 'LinearLR', 'CosineAnnealingLR', 'PolyLR', 'MultiStepLR', 'StepLR', 'OneCycleLR', 'CosineRestartLR',
    'WarmupCosineLR',
)  # fmt: skip
"""Schedulers whose other arguments do not depend on how finely time is counted."""
_INF = int(1e9)  # MMEngine's


def schedulers(cfg: Config) -> list[tuple[str, dict]]:
    """Return the parameter schedulers of a configuration by dotted key, except those of several optimisers."""
    configured = cfg.get('param_scheduler')
    if isinstance(configured, dict):
        return [('param_scheduler', configured)] if 'type' in configured else []
    return [
        (f'param_scheduler.{index}', part) for index, part in enumerate(configured or []) if isinstance(part, dict)
    ]


def check_units(cfg: Config) -> None:
    """Check that schedulers and checkpoints count what the loop of training counts, epochs or iterations.

    MMEngine takes others in silence: rates that never change, and no checkpoint before the end.

    Raises:
        ConfigError: One does not; the message names the key and the fix.
    """
    loop = cfg.train_cfg
    if loop.get('val_interval', 1) < 1:
        raise ConfigError(f'train_cfg.val_interval={loop.val_interval} is no whole number of at least 1')
    for number, hook in enumerate(cfg.get('custom_hooks') or []):
        is_of_ap = cfg.get('default_scope') == 'mmdet' and 'mAP' in str(hook.get('monitor'))
        if is_of_ap and str(hook.get('type')).endswith('EarlyStoppingHook') and 'min_delta' not in hook:
            key = f'custom_hooks.{number}'
            raise ConfigError(
                f'{key} (EarlyStoppingHook): min_delta is 0.1 by default, which is ten points of {hook.monitor}, so '
                f'the run would end after {hook.get("patience", 5)} validations with smaller steps: set '
                f'{key}.min_delta=0.001, for example'
            )
    if not loop.get('max_iters'):
        return
    counting = [(key, f'{key} ({part.get("type")})', part) for key, part in schedulers(cfg)]
    checkpoint = 'default_hooks.checkpoint'
    counting.append((checkpoint, checkpoint, (cfg.get('default_hooks') or {}).get('checkpoint') or {}))
    for key, name, node in counting:
        if node.get('by_epoch', True) and not node.get('convert_to_iter_based'):
            default = '' if 'by_epoch' in node else ' (by_epoch=True, the default)'
            effect = 'no checkpoint would be written on the way' if key == checkpoint else 'it would never act'
            raise ConfigError(
                f'{name} counts epochs{default}, but train_cfg counts iterations, so {effect}: set '
                f'{key}.by_epoch=False, and give its numbers in iterations'
            )


def check_schedule(cfg: Config) -> None:
    """Check that every scheduler ends after it begins, and begins before training ends.

    Raises:
        ConfigError: One does not; the message names its keys and the run's length, where it ends by
            default.
    """
    for key, scheduler in schedulers(cfg):
        by_epoch = scheduler.get('by_epoch', True)
        length = 'max_epochs' if by_epoch else 'max_iters'
        warmup, given = scheduler.get('warmup', 0), scheduler.get('end')
        begin = scheduler.get('begin', 0) + warmup
        run = cfg.train_cfg.get(length)
        ends = [value for value in (given, run) if value is not None]
        if not ends or begin < min(ends):
            steps = scheduler.get('total_steps')  # of OneCycleLR, which raises an error behind them
            if steps and ends and begin + steps < min(ends):
                raise ConfigError(
                    f'{key}.total_steps={steps} is over before {key} ({scheduler.get("type")}) ends: set '
                    f'{key}.total_steps={min(ends) - begin}, or {key}.end={begin + steps}'
                )
            continue
        end = min(ends)
        why = f'{key}.end={given}'
        if end == run:
            why = f'train_cfg.{length}={end}, the end of training'
        does = 'warms up until' if warmup else 'begins at'
        raise ConfigError(f'{key} ({scheduler.get("type")}) {does} {begin}, not before {why}: change one of the two')


def stretch(cfg: Config, factor: int) -> None:
    """Multiply everything that is counted in iterations, so that ``factor`` iterations replace one.

    This covers the run's length, intervals of evaluations and checkpoints, and schedulers; what is
    counted in epochs stays. Within one step of the optimiser, learning rates change by fractions of
    the step.

    Raises:
        ConfigError: A scheduler counts iterations in an unknown way.
    """

    def count(value: float) -> float:
        return value * factor

    if cfg.train_cfg.get('max_iters'):
        _scale_loop(cfg.train_cfg, count)
    for key, scheduler in schedulers(cfg):
        if not scheduler.get('by_epoch', True):
            _scale_scheduler(key, scheduler, factor, count, cfg.train_cfg)
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    if not checkpoint.get('by_epoch', True):
        _scale(checkpoint, [name for name in ('interval', 'save_begin') if checkpoint.get(name, -1) > 0], count)
    for hook in cfg.get('custom_hooks') or []:
        if str(hook.get('type')).endswith('EMAHook'):
            hook.setdefault('interval', 1)
            _scale(hook, ('interval', 'begin_iter'), count)


def shorten(cfg: Config, share: float) -> None:
    """Shorten a run to a share of its length, with everything that is counted along it.

    These are the intervals of evaluations, checkpoints and the log, the schedulers, and when hooks
    act, in iterations and in epochs. Each count is rounded, to 1 at least; parts of an epoch stay.
    A scheduler for which no time is left is removed.

    Args:
        cfg: Changed in place.
        share: In (0, 1]; 1 changes nothing.

    Raises:
        ConfigError: The share is none, or a scheduler counts in an unknown way.
    """
    if not 0 < share <= 1:
        raise ConfigError(f'--shorten {share}: give a share of the schedule, above 0 and up to 1')
    if share == 1:
        return

    def count(value: float) -> float:
        return value if value < 1 else max(1, round(value * share))

    _scale_loop(cfg.train_cfg, count)
    kept = []
    for key, scheduler in schedulers(cfg):
        if _scale_scheduler(key, scheduler, share, count, cfg.train_cfg):
            kept.append(scheduler)
        else:
            print_log(f'--shorten {share:g} leaves no time for {key} ({scheduler["type"]}): removed', 'current')
    if isinstance(cfg.get('param_scheduler'), list):
        cfg.param_scheduler = kept
    for hook in [*(cfg.get('default_hooks') or {}).values(), *(cfg.get('custom_hooks') or [])]:
        averages = str((hook or {}).get('type')).endswith('EMAHook')  # which are taken as often as before
        _scale(hook or {}, ('save_begin', 'begin_iter', 'begin_epoch', *(() if averages else ('interval',))), count)
        for change in (hook or {}).get('schedule') or ():  # of MMPretrain's SwitchRecipeHook
            _scale(change, ('action_epoch',), count)


def _scale(node: dict, keys: Iterable[str], count: Callable[[float], float]) -> None:
    for key in keys:
        value = node.get(key)
        if isinstance(value, list | tuple):
            node[key] = [count(part) for part in value]
        elif value is not None:
            node[key] = count(value)


def _scale_loop(loop: dict, count: Callable[[float], float]) -> None:
    if loop.get('max_iters'):
        loop.setdefault('val_interval', 1000)  # MMEngine's
    _scale(loop, ('max_iters', 'max_epochs', 'val_interval', 'val_begin'), count)
    if loop.get('dynamic_intervals'):
        loop['dynamic_intervals'] = [(count(begin), count(interval)) for begin, interval in loop['dynamic_intervals']]


def _scale_scheduler(key: str, scheduler: dict, factor: float, count: Callable[[float], float], loop: dict) -> bool:
    """Scale a scheduler of a run whose loop is scaled already; return whether it has any time left."""
    name = str(scheduler.get('type')).rpartition('.')[2]
    if name == 'ExponentialLR':
        scheduler['gamma'] **= 1 / factor
    elif name not in _UNCHANGED:
        option, fix = ('--accumulate', 'count it in epochs') if factor > 1 else ('--shorten', 'shorten it by hand')
        raise ConfigError(f'{option} does not know how {key} ({name}) counts: {fix}')
    begin = scheduler.get('begin', 0)
    first = count(begin)
    _scale(scheduler, _SPANS, lambda duration: max(count(begin + duration) - first, min(duration, 1)))
    _scale(scheduler, ('begin', 'end'), count)
    length = 'max_epochs' if scheduler.get('by_epoch', True) else 'max_iters'
    end = scheduler.get('end') or loop.get(length) or _INF
    if scheduler.get('warmup'):
        scheduler['warmup'] = min(scheduler['warmup'], end - first - 1)
    return first < end


@PARAM_SCHEDULERS.register_module()
class WarmupCosineLR(_ParamScheduler):
    """A linear warm-up and a cosine as in ``timm.scheduler.CosineLRScheduler``.

    MMEngine's two begin anew after it. It is SGDR's cosine (arXiv 1608.03983) without restarts,
    whose time runs from the start, below the warm-up as well. Of the step t, with the group's rate
    b:

        f(t) = s + (b - s) t / w                               for t < w
        f(t) = m + (b - m) (1 + cos(pi t / T)) / 2             for w <= t < T,  m from T on

    Args:
        optimizer: Its groups have their rates b.
        warmup: Epochs w of warm-up, or iterations.
        warmup_start: First rate s, of every group.
        eta_min: Last rate m, of every group.
        T_max: Epochs T of the cosine; all by default.
        warmup_prefix: Whether the cosine's time begins after the warm-up, t - w for t and T - w for
            T.
        begin: As MMEngine's schedulers have it.
        end: Likewise.
        **kwargs: Likewise.
    """

    def __init__(
        self,
        optimizer,
        warmup: int,
        warmup_start: float,
        eta_min: float,
        T_max: int | None = None,
        warmup_prefix: bool = False,
        begin: int = 0,
        end: int = _INF,
        **kwargs,
    ) -> None:
        self.warmup, self.warmup_start, self.eta_min = warmup, warmup_start, eta_min
        self.skipped = warmup if warmup_prefix else 0
        self.length = (T_max or end - begin) - self.skipped
        super().__init__(optimizer, 'lr', begin=begin, end=end, **kwargs)

    @classmethod
    def build_iter_from_epoch(cls, *args, by_epoch: bool = True, epoch_length: int, **kwargs):
        """Build one that counts iterations from arguments that count epochs."""
        counts = {name: kwargs[name] for name in ('warmup', 'T_max', 'begin', 'end') if kwargs.get(name) is not None}
        counts = {name: min(int(value * epoch_length), _INF) for name, value in counts.items()}
        return cls(*args, **dict(kwargs, **counts, by_epoch=False))

    def _get_value(self) -> list[float]:
        if self.last_step < self.warmup:
            share = self.last_step / self.warmup
            return [self.warmup_start + share * (base - self.warmup_start) for base in self.base_values]
        passed = min((self.last_step - self.skipped) / self.length, 1.0)
        share = (1 + math.cos(math.pi * passed)) / 2
        return [self.eta_min + share * (base - self.eta_min) for base in self.base_values]
