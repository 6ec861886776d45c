"""Interleaved timing (A B B A ...), medians with their spread, and ratios of medians with a bootstrap interval."""

import gc
import time
from collections.abc import Callable, Sequence

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000
WARM_UP = 2
FEWEST = 9
"""Rounds before the budget counts, and before an interval is given: the bootstrap of fewer is too narrow."""


def interleave(works: Sequence[Callable[[], object]], device: str, repeats: int, budget: float) -> list[list[float]]:
    """Time pieces of work in turns, so that a drift of the machine meets all of them alike.

    The order is reversed from round to round: A B, B A, A B, ...

    Args:
        works: One piece of work a side.
        device: 'cuda' times with events between synchronisations, anything else uses the clock.
        repeats: Rounds at most.
        budget: Seconds after which no further round starts, once there were nine.

    Returns:
        Seconds of each round, for each side.
    """
    clock = _cuda_seconds if device == 'cuda' else _seconds
    for _ in range(WARM_UP):
        for work in works:
            clock(work)
    rounds: list[list[float]] = [[] for _ in works]
    gc.collect()
    gc.disable()
    started = time.perf_counter()
    try:
        for number in range(repeats if works else 0):
            if number >= FEWEST and time.perf_counter() - started > budget:
                break
            sides = list(zip(works, rounds))
            for work, seconds in sides if number % 2 == 0 else reversed(sides):
                seconds.append(clock(work))
    finally:
        gc.enable()
    return rounds


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _cuda_seconds(work: Callable[[], object]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def spread(samples: Sequence[float]) -> dict[str, float | int]:
    """Return median and interquartile range of samples."""
    low, median, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return {'n': len(samples), 'median': float(median), 'iqr': [float(low), float(high)]}


def ratio(samples: Sequence[float], reference: Sequence[float]) -> dict[str, float | None]:
    """Return the ratio of the medians, with a percentile bootstrap interval.

    Args:
        samples: Seconds of the side in question.
        reference: Those of the side that it is compared with, of the same rounds.

    Returns:
        `value`, `confidence`, `low` and `high`; the last two are None below nine rounds.
    """
    a, b = np.asarray(samples), np.asarray(reference)
    value = float(np.median(a) / np.median(b))
    if len(a) < FEWEST:
        return {'value': value, 'low': None, 'high': None, 'confidence': CONFIDENCE}
    drawn = np.random.default_rng(0).integers(len(a), size=(RESAMPLES, len(a)))
    ratios = np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1)
    low, high = np.quantile(ratios, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return {'value': value, 'low': float(low), 'high': float(high), 'confidence': CONFIDENCE}
