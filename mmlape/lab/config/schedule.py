"""The length of a run and everything counted along it: checked before the run starts, stretched, shortened."""

import copy
import math
from collections.abc import Callable

from mmengine.hooks import EarlyStoppingHook
from mmengine.optim import _ParamScheduler
from mmengine.optim.scheduler import ReduceOnPlateauParamScheduler

from mmlape.console.log import log
from mmlape.errors import ConfigError
from mmlape.lab.config.counts import SELF, changed, counting
from mmlape.lab.recipe import Part, Recipe
from mmlape.lab.registry import PARAM_SCHEDULERS

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
