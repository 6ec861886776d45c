"""Which argument of a hook, a loop or a scheduler counts epochs or iterations.

A class of a user's says it by itself: ``counts = dict(switch_at='epochs')``, and ``counts = {}`` if no number of it
counts time. Units are

    epochs, iterations   of the run
    an argument          'by_epoch': which of the two it is, True for epochs
    loop                 which of the two the run is counted in
    log                  iterations between two things that change no result
    steps                iterations that make a step of the optimiser: whatever the length of the run
    span                 of a scheduler, counted from its ``begin``
    rate                 a factor of each step
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mmlape.errors import ConfigError
from mmlape.lab.recipe import Part
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
