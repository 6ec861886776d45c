"""The length of a run and everything counted along it: checked before the run starts, stretched, shortened.

A class of a user's says by itself which argument counts what: ``counts = dict(switch_at='epochs')``, and
``counts = {}`` if no number of it counts time. Units are

    epochs, iterations   of the run
    an argument          'by_epoch': which of the two it is, True for epochs
    loop                 which of the two the run is counted in
    log                  iterations between two things that change no result
    steps                iterations that make a step of the optimiser: whatever the length of the run
    span                 of a scheduler, counted from its ``begin``
    rate                 a factor of each step
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mmengine.hooks import EarlyStoppingHook
from mmengine.optim import _ParamScheduler
from mmengine.optim.scheduler import ReduceOnPlateauParamScheduler

from mmlape.console.log import log
from mmlape.errors import ConfigError
from mmlape.lab.recipe import Part, Recipe
from mmlape.lab.registry import PARAM_SCHEDULERS
from mmlape.lab.runs.identity import leaves


class Count(NamedTuple):
    """What an argument counts, and its default if that acts along a run."""

    unit: str
    default: int | None = None


UNITS = ('epochs', 'iterations', 'loop', 'log', 'steps', 'span', 'rate')
SELF = ''
"""In place of an argument: what the class acts by, whatever its arguments are."""

_EPOCHS = {
    'max_epochs': 'epochs', 'val_begin': 'epochs', 'val_interval': 'epochs', 'dynamic_intervals.*.*': 'epochs'
}  # fmt: skip
_ITERATIONS = {
    'max_iters': 'iterations', 'val_begin': 'iterations', 'val_interval': Count('iterations', 1000),
    'dynamic_intervals.*.*': 'iterations',
}  # fmt: skip
_AVERAGE = {'begin_iter': 'iterations', 'begin_epoch': 'epochs', 'interval': Count('steps', 1)}

_COUNTS: dict[str, dict[str, Any]] = {
    'mmengine.EpochBasedTrainLoop': _EPOCHS,
    'mmengine.IterBasedTrainLoop': _ITERATIONS,
    'mmengine.CheckpointHook': {SELF: 'by_epoch', 'interval': 'by_epoch', 'save_begin': 'by_epoch'},
    'mmengine.EMAHook': _AVERAGE,
    'mmengine.LoggerHook': {'interval': 'log'},
    'mmdet.CheckInvalidLossHook': {'interval': 'log'},
    'mmdet.MemoryProfilerHook': {'interval': 'log'},
    'mmdet.MeanTeacherHook': {'interval': Count('steps', 1)},
    'mmdet.PipelineSwitchHook': {'switch_epoch': 'epochs'},
    'mmdet.SetEpochInfoHook': {SELF: 'epochs'},
    'mmdet.YOLOXModeSwitchHook': {SELF: 'epochs', 'num_last_epochs': Count('epochs', 15)},
    'mmpretrain.DenseCLHook': {'start_iters': Count('iterations', 1000)},
    'mmpretrain.PreciseBNHook': {'interval': Count('loop', 1)},
    'mmpretrain.SimSiamHook': {SELF: 'adjust_by_epoch'},
    'mmpretrain.SwAVHook': {
        'epoch_queue_starts': Count('epochs', 15), 'interval': 'epochs', 'frozen_layers_cfg.*': 'iterations'
    },
    'mmpretrain.SwitchRecipeHook': {'schedule.*.action_epoch': 'epochs'},
    'mmpretrain.WarmupParamHook': {'warmup_epochs': 'epochs'},
    # numbers of these count images, validations or nothing along the run
    **{name: {} for name in (
        'mmengine.EarlyStoppingHook', 'mmengine.EmptyCacheHook', 'mmengine.IterTimerHook',
        'mmengine.NaiveVisualizationHook', 'mmengine.ParamSchedulerHook', 'mmengine.ProfilerHook',
        'mmengine.NPUProfilerHook', 'mmengine.RuntimeInfoHook', 'mmengine.DistSamplerSeedHook',
        'mmengine.SyncBuffersHook', 'mmengine.PrepareTTAHook', 'mmdet.NumClassCheckHook', 'mmdet.SyncNormHook',
        'mmdet.TrainAugmentDetVisualizationHook', 'mmdet.DetVisualizationHook', 'mmdet.TrackVisualizationHook',
        'mmseg.SegVisualizationHook', 'mmpretrain.ClassNumCheckHook', 'mmpretrain.SetAdaptiveMarginsHook',
        'mmpretrain.PrepareProtoBeforeValLoopHook', 'mmpretrain.VisualizationHook',
    )},
    # schedulers, also those of momentum and of weight decay, which are derived from these
    'mmengine.StepParamScheduler': {'step_size': 'span'},
    'mmengine.MultiStepParamScheduler': {'milestones': 'span'},
    'mmengine.CosineAnnealingParamScheduler': {'T_max': 'span'},
    'mmengine.CosineRestartParamScheduler': {'periods': 'span'},
    'mmengine.OneCycleParamScheduler': {'total_steps': 'span'},
    'mmengine.ExponentialParamScheduler': {'gamma': 'rate'},
    **{name: {} for name in (
        'mmengine.ConstantParamScheduler', 'mmengine.LinearParamScheduler', 'mmengine.PolyParamScheduler',
        'mmdet.QuadraticWarmupParamScheduler',
    )},
}  # fmt: skip
"""By package and name of the class, so that none of them needs to be imported; derived classes count alike."""


class Counting(NamedTuple):
    """What a part of a recipe counts."""

    counts: dict[str, Count]  # by argument, the units of which are settled: never the name of an argument, or 'loop'
    unknown: list[str]  # numbers of which nothing says what they count
    is_known: bool  # whether the class or one of its bases is in the table, or says it by itself


def counting(part: Part, loop_unit: str) -> Counting:
    """Return what a part counts, in a run whose loop counts 'epochs' or 'iterations'."""
    if part.cls is None:
        return Counting({}, [], False)
    base, entry = next(((base, own) for base in part.cls.__mro__ if (own := _said_by(base)) is not None), (None, {}))
    known = {name: count if isinstance(count, Count) else Count(count) for name, count in entry.items()}
    of_base = Part('', {}, base).parameters
    arguments = {**of_base, **part.parameters}
    values = {**{name: one.default for name, one in arguments.items()}, **part.cfg}
    takes_others = any(one.kind is one.VAR_KEYWORD for one in arguments.values())
    wrong = [name for name in known if name.partition('.')[0] not in {SELF, *values}]
    if wrong and not takes_others:
        raise ConfigError(f'{part}: its counts name {wrong[0]}, which is none of its arguments')
    settled = {
        name: Count(_settled(part, count.unit, values, loop_unit), count.default) for name, count in known.items()
    }
    unknown: list[str] = []
    if base is not part.cls:
        named = {'priority', *of_base, *(name.partition('.')[0] for name in known)}
        numbers = [name for name, value in values.items() if any(type(leaf) is int for _, leaf in leaves(value))]
        unknown = [name for name in numbers if name not in named]
    return Counting(settled, unknown, base is not None)


def _said_by(cls: type) -> Mapping[str, Any] | None:
    own = vars(cls).get('counts')
    return own if isinstance(own, Mapping) else _COUNTS.get(f'{cls.__module__.partition(".")[0]}.{cls.__name__}')


def _settled(part: Part, unit: str, values: Mapping[str, Any], loop_unit: str) -> str:
    """Return what a unit is, given the values of all arguments."""
    if unit in UNITS:
        return loop_unit if unit == 'loop' else unit
    if unit not in values:
        raise ConfigError(f'{part}: its counts say {unit!r}, which is no argument and no unit: {", ".join(UNITS)}')
    return 'epochs' if values[unit] else 'iterations'


def changed(node: Any, place: str, change: Callable[[Any], Any]) -> Any:
    """Return a part of a config with the numbers at a dotted place changed; ``*`` stands for each entry there."""
    first, _, rest = place.partition('.')
    if isinstance(node, list | tuple):
        return type(node)([changed(child, rest if first == '*' else place, change) for child in node])
    if isinstance(node, dict):
        node.update({key: changed(child, rest, change) for key, child in node.items() if first in ('*', key)})
        return node
    return node if place or node is None or isinstance(node, bool) else change(node)


_INF = int(1e9)  # MMEngine's


def check_units(recipe: Recipe) -> None:
    """Check that schedulers and hooks count what the loop of training counts, epochs or iterations.

    MMEngine takes others in silence: rates and pipelines that never change, and no checkpoint before the end.

    Raises:
        ConfigError: One does not; the message names the key and the fix.
    """
    interval = recipe.loop.cfg.get('val_interval', 1)
    if interval < 1:
        raise ConfigError(f'train_cfg.val_interval={interval} is no whole number of at least 1')
    bases = [base for evaluator in recipe.evaluators for base in getattr(evaluator.cls, '__mro__', ())]
    has_ap = any(base.__module__.startswith('mmdet.') for base in bases)
    for hook in recipe.hooks if has_ap else ():
        monitor = hook.cfg.get('monitor')
        if hook.is_a(EarlyStoppingHook) and 'mAP' in str(monitor) and 'min_delta' not in hook.cfg:
            raise ConfigError(
                f'{hook}: min_delta is 0.1 by default, which is ten points of {monitor}, so the run would end after '
                f'{hook.cfg.get("patience", 5)} validations with smaller steps: set {hook.key}.min_delta=0.001, '
                'for example'
            )
    if recipe.unit == 'epochs':
        return
    for part in [*recipe.schedulers, *recipe.hooks]:
        is_scheduler = part in recipe.schedulers
        if part.is_a(ReduceOnPlateauParamScheduler) and not part.cfg.get('begin'):
            continue  # it acts after validations, whichever the loop counts
        counts = counting(part, recipe.unit).counts
        epochs = {name for name, count in counts.items() if count.unit == 'epochs'}
        if is_scheduler and part.cfg.get('by_epoch', True) and not part.cfg.get('convert_to_iter_based'):
            epochs = {SELF}
        acting = sorted(name for name in epochs if name == SELF or _has_counts(part, name))
        if not acting:
            continue
        arguments = [name for name in part.parameters if name.endswith('by_epoch')] or ['by_epoch'] * is_scheduler
        default = ''.join(f' ({name}=True, the default)' for name in arguments if name not in part.cfg)
        name, effect = str(part), 'it would never act'
        fix = 'count the run in epochs, by train_cfg.max_epochs, or remove it'
        if part is recipe.default_hooks['checkpoint']:
            name, effect = part.key, 'no checkpoint would be written on the way'
        if arguments:
            fix = f'set {part.key}.{arguments[0]}=False, and give its numbers in iterations'
        raise ConfigError(f'{name} counts epochs{default}, but train_cfg counts iterations, so {effect}: {fix}')


def _has_counts(part: Part, place: str) -> bool:
    """Return whether a config gives a number above 0 at a dotted place."""
    return changed(copy.deepcopy(part.cfg), place, lambda value: min(value, 0)) != part.cfg


def check_schedule(recipe: Recipe) -> None:
    """Check that every scheduler ends after it begins, and begins before training ends.

    Raises:
        ConfigError: One does not; the message names its keys and the run's length, where it ends by
            default.
    """
    for part in recipe.schedulers:
        scheduler, key = part.cfg, part.key
        by_epoch = scheduler.get('by_epoch', True)
        length = 'max_epochs' if by_epoch else 'max_iters'
        warmup, given = scheduler.get('warmup', 0), scheduler.get('end')
        begin = scheduler.get('begin', 0) + warmup
        run = recipe.loop.cfg.get(length)
        ends = [value for value in (given, run) if value is not None]
        if not ends or begin < min(ends):
            steps = scheduler.get('total_steps')  # of OneCycleLR, which raises an error behind them
            if steps and ends and begin + steps < min(ends):
                raise ConfigError(
                    f'{key}.total_steps={steps} is over before {part} ends: set '
                    f'{key}.total_steps={min(ends) - begin}, or {key}.end={begin + steps}'
                )
            continue
        end = min(ends)
        why = f'{key}.end={given}'
        if end == run:
            why = f'train_cfg.{length}={end}, the end of training'
        does = 'warms up until' if warmup else 'begins at'
        raise ConfigError(f'{part} {does} {begin}, not before {why}: change one of the two')


def stretch(recipe: Recipe, factor: int) -> None:
    """Multiply everything that is counted in iterations, so that ``factor`` iterations replace one.

    This covers the run's length, intervals of evaluations and checkpoints, schedulers and hooks; what is
    counted in epochs stays. Within one step of the optimiser, learning rates change by fractions of
    the step.

    Raises:
        ConfigError: A scheduler or a hook counts iterations in an unknown way.
    """
    _rescale(
        recipe, factor, lambda value: value * factor if value > 0 else value, ('iterations', 'steps'), '--accumulate'
    )


def shorten(recipe: Recipe, share: float) -> None:
    """Shorten a run to a share of its length, with everything that is counted along it.

    These are the intervals of evaluations, checkpoints and the log, the schedulers, and when hooks
    act, in iterations and in epochs. Each count is rounded, to 1 at least; parts of an epoch stay.
    A scheduler for which no time is left is removed.

    Args:
        recipe: Its config is changed in place.
        share: In (0, 1]; 1 changes nothing.

    Raises:
        ConfigError: The share is none, or a scheduler or a hook counts in an unknown way.
    """
    if not 0 < share <= 1:
        raise ConfigError(f'--shorten {share}: give a share of the schedule, above 0 and up to 1')
    if share < 1:
        along = ('epochs', 'iterations', 'log')
        _rescale(recipe, share, lambda value: value if value < 1 else max(1, round(value * share)), along, '--shorten')


def _rescale(
    recipe: Recipe, factor: float, count: Callable[[float], float], units: tuple[str, ...], option: str
) -> None:
    """Change all counts of a recipe that are in some units, for a run of ``factor`` times the length."""
    _scale(recipe.loop, recipe, units, count, option)
    for part in list(recipe.schedulers):
        unit = 'epochs' if part.cfg.get('by_epoch', True) else 'iterations'
        if unit in units and not _scale_scheduler(part, factor, count, recipe, option):
            log(f'{option} {factor:g} leaves no time for {part}: removed')
            recipe.schedulers.remove(part)
    if isinstance(recipe.cfg.get('param_scheduler'), list):
        recipe.cfg.param_scheduler = [part.cfg for part in recipe.schedulers]
    for part in recipe.hooks:
        _scale(part, recipe, units, count, option)


def _scale(part: Part, recipe: Recipe, units: tuple[str, ...], count: Callable[[float], float], option: str) -> None:
    """Scale what a loop or a hook counts in one of the units."""
    found = counting(part, recipe.unit)
    if found.unknown:
        raise ConfigError(
            f'{option} does not know what {part} counts by {", ".join(found.unknown)}: say so on its class, by '
            f"counts = dict({found.unknown[0]}='epochs'), 'iterations', or counts = {{}} if it is no time of the run"
        )
    for place, (unit, default) in found.counts.items():
        if unit in units and place != SELF:
            if default is not None and place not in part.cfg and count(default) != default:
                part.cfg[place] = default
            changed(part.cfg, place, count)


def _scale_scheduler(part: Part, factor: float, count: Callable[[float], float], recipe: Recipe, option: str) -> bool:
    """Scale a scheduler of a run whose loop is scaled already; return whether it has any time left."""
    found, scheduler = counting(part, recipe.unit), part.cfg
    if found.unknown or not found.is_known:
        fix = 'count it in epochs' if factor > 1 else 'shorten it by hand'
        raise ConfigError(f'{option} does not know how {part} counts: {fix}')
    begin = scheduler.get('begin', 0)
    first = count(begin)
    for place, (unit, _) in found.counts.items():
        if unit == 'rate':
            scheduler[place] **= 1 / factor
        elif unit == 'span':
            changed(scheduler, place, lambda duration: max(count(begin + duration) - first, min(duration, 1)))
    for place in ('begin', 'end'):
        changed(scheduler, place, count)
    length = 'max_epochs' if scheduler.get('by_epoch', True) else 'max_iters'
    end = scheduler.get('end') or recipe.loop.cfg.get(length) or _INF
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

    counts = {'warmup': 'span', 'T_max': 'span'}

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
