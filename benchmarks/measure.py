"""One comparison measured: times or memory of each side, ratios against the first, shares of the machine."""

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor

from benchmarks import floor, memory, timing
from benchmarks.comparison import Comparison, Settings, free
from benchmarks.disturbance import Watch


def measure(comparison: Comparison, settings: Settings, rates: dict[str, float] | None) -> dict:
    """Time the sides in turns.

    A side that cannot run is left out, with the reason; without the reference there are no ratios.

    Args:
        rates: what `floor.rates` gave for the dtype; None where the work is not on torch's device.
    """
    works, failed = {}, {}
    for side in comparison.sides:
        try:
            works[side.name] = side.build()
            works[side.name]()
        except Exception as error:
            works.pop(side.name, None)
            failed[side.name] = _reason(error)
    result = _head(comparison, 's', failed)
    counts = {name: floor.count(work) for name, work in works.items()} if rates and comparison.counted else {}
    device = 'reported' if comparison.reports else settings.device if comparison.timed else 'clock'
    warm_up = timing.WARM_UP if comparison.timed else 0  # a process starts from nothing each time
    watch = Watch()
    samples = timing.interleave(list(works.values()), device, settings.repeats, settings.budget, warm_up, watch)
    for name, values in zip(works, samples):
        result['sides'].append({'name': name, 'samples': values, **timing.spread(values)})
        _add_rates(result['sides'][-1], comparison.items, counts.get(name), rates)
    _add_ratios(result, comparison, paired=True)
    result.update(repeated=watch.repeated, disturbed=watch.disturbed)
    result['note'] = '; '.join(filter(None, (watch.remark(), _note(comparison)))) if works else ''
    works.clear()
    free(settings.device)
    return result


def measure_memory(comparison: Comparison, settings: Settings) -> dict:
    """Measure the peak memory of the sides, each in a process of its own; on the CPU one process a core at once."""
    repeats = 1 if settings.quick or settings.device == 'cuda' else 2
    parallel = 1 if settings.device == 'cuda' else len(os.sched_getaffinity(0))
    names = [side.name for side in comparison.sides]
    found: dict[str, list[float]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(parallel) as pool:
        children = [(name, pool.submit(memory.peak_memory, comparison, name, settings)) for name in repeats * names]
    for name, child in children:
        error = child.exception()
        if error is None:
            found[name].append(child.result())
        else:
            failed[name] = _reason(error)
    result = _head(dataclasses.replace(comparison, suite='memory'), 'MiB', failed)
    for name, values in found.items():
        if values:
            result['sides'].append({'name': name, 'samples': values, **timing.spread(values)})
    _add_ratios(result, comparison, paired=False)
    return result


def _head(comparison: Comparison, unit: str, failed: dict[str, str]) -> dict:
    fields = {name: getattr(comparison, name) for name in ('suite', 'case', 'work', 'shape', 'dtype', 'items')}
    if comparison.suite == 'memory':
        fields['items'] = 0
    return {'key': comparison.key, **fields, 'unit': unit, 'sides': [], 'ratios': [], 'failed': failed, 'note': ''}


def _add_rates(side: dict, items: int, counted: dict | None, rates: dict[str, float] | None) -> None:
    if items:
        side['items_per_second'] = items / side['median']
    if counted and rates:
        side.update(counted)
        side['of_matrix_rate'] = counted['flops'] / rates['matrix'] / side['median']
        side['of_bandwidth'] = counted['bytes'] / rates['bandwidth'] / side['median']


def _add_ratios(result: dict, comparison: Comparison, paired: bool) -> None:
    by_name = {side['name']: side['samples'] for side in result['sides']}
    reference = comparison.sides[0].name
    for name, samples in by_name.items():
        if reference in by_name and name != reference:
            found = timing.ratio(samples, by_name[reference], paired)
            result['ratios'].append({'side': name, 'reference': reference, **found})


def _note(comparison: Comparison) -> str:
    try:
        return comparison.note() if callable(comparison.note) else comparison.note
    except Exception as error:
        return f'agreement not checked: {_reason(error)}'


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f'{type(error).__name__}: {lines[0] if lines else ""}'[:300]
