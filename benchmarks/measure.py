"""One comparison measured: time, memory and kernels of each side, and ratios over the first."""

import dataclasses
from collections.abc import Callable

import torch

from benchmarks import memory
from benchmarks.agreement import forget_directions
from benchmarks.checks import Found, reason
from benchmarks.comparison import Comparison, Settings, free
from benchmarks.timing import interleave, ratio, spread


@dataclasses.dataclass
class Side:
    """What was measured of one side.

    Attributes:
        seconds: Of each round.
        memory: MiB at most; None where that is not measured.
        kernels: Their number and their seconds, where they can be seen.
    """

    seconds: list[float]
    memory: float | None = None
    kernels: dict[str, float] = dataclasses.field(default_factory=dict)


def measure(comparison: Comparison, settings: Settings) -> Found:
    """Time the sides in turns; one that does not run fails the line, and the others are measured all the same."""
    works, failed, peaks = {}, {}, {}
    for name, build in comparison.sides.items():
        try:
            forget_directions()  # so that each side's peak has its own
            start = allocated(settings.device)
            works[name] = build()
            works[name]()
            allocated(settings.device)  # so that what compiling and choosing kernels take is not counted
            works[name]()
            peaks[name] = (allocated(settings.device, peak=True) - start) / 2**20 or None
        except Exception as error:
            works.pop(name, None)
            failed[name] = reason(error)
    kernels = {name: _kernels(work, settings.device) for name, work in works.items()}
    rounds = interleave(list(works.values()), settings.device, settings.repeats, settings.budget)
    sides = {name: Side(seconds, peaks[name], kernels[name]) for name, seconds in zip(works, rounds)}
    works.clear()
    free(settings.device)
    found = judged(sides, failed, comparison.goals, settings)
    note = _note(comparison) if sides else ''
    return dataclasses.replace(found, figure='; '.join(filter(None, [found.figure, note])))


def _note(comparison: Comparison) -> str:
    try:
        return comparison.note() if comparison.note else ''
    except Exception as error:
        return f'agreement not checked: {reason(error)}'


def judged(
    sides: dict[str, Side], failed: dict[str, str], goals: dict[str, tuple[float, float]], settings: Settings
) -> Found:
    """Judge a comparison: every side ran, and no goal is missed for certain.

    Args:
        sides: What was measured.
        failed: Why other sides did not run.
        goals: Ratios in time and in memory.
        settings: The images of a piece of work, and the dtype.
    """
    texts, missed, values = [], [f'{name}: {why}' for name, why in failed.items()], {}
    reference = next(iter(sides), None)
    for name, side in sides.items():
        base = sides[reference] if name != reference else None
        median = spread(side.seconds)['median']
        known: dict = dict(spread(side.seconds), seconds=side.seconds, memory_mib=side.memory)
        known['images_per_second'] = settings.images / median
        text = f'{name} {1e3 * median:.4g} ms = {settings.images / median:.4g}/s'
        if base:
            known['ratio'] = ratio(side.seconds, base.seconds)
            value, low, high = (known['ratio'][key] for key in ('value', 'low', 'high'))
            text += f' ({value:.3f})' if low is None else f' ({value:.3f} [{low:.3f}, {high:.3f}])'
        if side.memory is not None:
            text += f', {side.memory:.0f} MiB'
            if base and base.memory:
                known['memory_ratio'] = side.memory / base.memory
                text += f' ({known["memory_ratio"]:.4f})'
        if side.kernels:
            known |= side.kernels
            text += f', {known["kernels"]} kernels of {1e3 * known["kernel_seconds"]:.4g} ms'
            if base and base.kernels:
                known['kernel_ratio'] = known['kernel_seconds'] / base.kernels['kernel_seconds']
                text += f' ({known["kernel_ratio"]:.3f})'
        texts.append(text)
        values[name] = known
        if base and name in goals:
            time_goal, memory_goal = goals[name]
            if known['ratio']['low'] is not None and known['ratio']['low'] > time_goal:
                missed.append(f'{name} misses {time_goal:g} in time')
            if known.get('memory_ratio', 0.0) > memory_goal:
                missed.append(f'{name} misses {memory_goal:g} in memory')
    return Found(bool(sides) and not missed, '; '.join([*missed, *texts]), values)


def allocated(device: str, peak: bool = False) -> int:
    """Return the bytes that torch has allocated, or had at most since the last call; 0 on the CPU."""
    if device != 'cuda':
        return 0
    torch.cuda.synchronize()
    if peak:
        return torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _kernels(work: Callable, device: str) -> dict[str, float]:
    """Return how many kernels a piece of work runs, and their seconds together; nothing where they cannot be seen."""
    if device != 'cuda':
        return {}
    torch.cuda.synchronize()
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
    except RuntimeError:  # a profiler that may not run here costs no line
        return {}
    kernels = [
        event
        for event in profile.key_averages()
        if event.self_device_time_total
        and not event.is_user_annotation
        and not event.key.startswith(('Memcpy', 'Memset'))
    ]
    seconds = sum(event.self_device_time_total for event in kernels) / 1e6
    return dict(kernels=sum(event.count for event in kernels), kernel_seconds=seconds) if kernels else {}


def measure_memory(suite: str, comparison: Comparison, settings: Settings) -> Found:
    """Measure the peak memory of the sides, each in a process of its own."""
    peaks, failed = {}, []
    for name in comparison.sides:
        try:
            peaks[name] = memory.peak_memory(suite, comparison.name, name, settings)
        except Exception as error:
            failed.append(f'{name}: {reason(error)}')
    first = next(iter(peaks.values()), 0.0)
    texts = [f'{name} {peak:.1f} MiB ({peak / first:.3f})' for name, peak in peaks.items()]
    values = {name: dict(memory_mib=peak, memory_ratio=peak / first) for name, peak in peaks.items()}
    return Found(not failed, '; '.join([*failed, *texts]), values)
