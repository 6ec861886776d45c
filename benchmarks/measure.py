"""One comparison measured: time and memory of each side, ratios over the first, shares of what the machine can do."""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

from benchmarks import floor, memory
from benchmarks.agreement import forget_directions
from benchmarks.checks import Found, reason
from benchmarks.comparison import Comparison, Settings, free
from benchmarks.disturbance import Watch
from benchmarks.timing import interleave, ratio, spread

rates = cache(floor.rates)
"""What a device reaches with a dtype, measured once in a process."""


@dataclasses.dataclass
class Side:
    """What was measured of one side.

    Attributes:
        seconds: Of each round.
        memory: MiB at most; None where that is not measured.
        counts: FLOPs and bytes, kernels and their seconds, as far as they are known.
    """

    seconds: list[float]
    memory: float | None = None
    counts: dict[str, float] = dataclasses.field(default_factory=dict)


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
    counts = {name: _counted(work) | _kernels(work, settings.device) for name, work in works.items()}
    watch = Watch() if settings.device == 'cpu' else None
    rounds = interleave(list(works.values()), settings.device, settings.repeats, settings.budget, watch=watch)
    sides = {name: Side(seconds, peaks[name], counts[name]) for name, seconds in zip(works, rounds)}
    works.clear()
    free(settings.device)
    found = judged(sides, failed, comparison.goals, settings)
    remarks = [watch.remark() if watch else '', _note(comparison) if sides else '']
    return dataclasses.replace(found, figure='; '.join(filter(None, [found.figure, *remarks])))


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
            text += f' ({interval(known["ratio"])})'
        if side.memory is not None:
            text += f', {side.memory:.0f} MiB'
            if base and base.memory:
                known['memory_ratio'] = side.memory / base.memory
                text += f' ({known["memory_ratio"]:.4f})'
        if 'kernels' in side.counts:
            known |= {key: side.counts[key] for key in ('kernels', 'kernel_seconds')}
            text += f', {known["kernels"]} kernels of {1e3 * known["kernel_seconds"]:.4g} ms'
            if base and base.counts.get('kernel_seconds'):
                known['kernel_ratio'] = known['kernel_seconds'] / base.counts['kernel_seconds']
                text += f' ({known["kernel_ratio"]:.3f})'
        if 'flops' in side.counts:
            best = rates(settings.device, settings.dtype, settings.quick)
            known['of_matrix_rate'] = side.counts['flops'] / median / best['matrix']
            known['of_bandwidth'] = side.counts['bytes'] / median / best['bandwidth']
            text += f', {known["of_matrix_rate"]:.0%} matrix, {known["of_bandwidth"]:.0%} bandwidth'
        texts.append(text)
        values[name] = known
        if base and name in goals:
            missed += _missed(name, known, *goals[name])
    return Found(bool(sides) and not missed, '; '.join([*missed, *texts]), values)


def interval(of: dict) -> str:
    """Return a ratio with its interval, where it has one."""
    text = f'{of["value"]:.3f}'
    return text if of['low'] is None else f'{text} [{of["low"]:.3f}, {of["high"]:.3f}]'


def _missed(name: str, known: dict, time_goal: float, memory_goal: float) -> list[str]:
    low = known['ratio']['low']
    missed = []
    if low is not None and low > time_goal:
        missed.append(f'{name} misses {time_goal:g} in time')
    if known.get('memory_ratio', 0.0) > memory_goal:
        missed.append(f'{name} misses {memory_goal:g} in memory')
    return missed


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


def _counted(work: Callable) -> dict[str, float]:
    """Return FLOPs and bytes of a piece of work; nothing where an operation cannot be counted."""
    try:
        return floor.count(work)
    except Exception:
        return {}


def measure_memory(suite: str, comparison: Comparison, settings: Settings) -> Found:
    """Measure the peak memory of the sides, each in a process of its own; on the CPU one process a core at once."""
    parallel = 1 if settings.device == 'cuda' else len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(parallel) as pool:
        children = {
            name: pool.submit(memory.peak_memory, suite, comparison.name, name, settings) for name in comparison.sides
        }
    peaks = {name: child.result() for name, child in children.items() if not child.exception()}
    failed = [f'{name}: {reason(child.exception())}' for name, child in children.items() if child.exception()]
    first = next(iter(peaks.values()), 0.0)
    texts = [f'{name} {peak:.1f} MiB ({peak / first:.3f})' for name, peak in peaks.items()]
    values = {name: dict(memory_mib=peak, memory_ratio=peak / first) for name, peak in peaks.items()}
    return Found(not failed, '; '.join([*failed, *texts]), values)
