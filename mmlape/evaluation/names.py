"""What the metrics are called, which of them come first, and the unit they are shown in: points.

A point is a hundredth: COCO's AP, which is recorded in [0, 1], is multiplied by 100 as papers do; mIoU and accuracies
are recorded in percent already. What a run writes stays as the metric returned it.
"""

import math
import re
from collections.abc import Iterable

TASKS = {
    'detection': ('coco/bbox_mAP', 'coco/segm_mAP'),
    'segmentation': ('mIoU',),
    'classification': ('accuracy/top1',),
}
"""The metrics that the papers compare by, for each task."""

LABELS = {
    'coco/bbox_mAP': 'box AP',
    'coco/segm_mAP': 'mask AP',
    'accuracy/top1': 'top-1',
    'accuracy/top5': 'top-5',
    'bbox_AP': 'box AP',
    'segm_AP': 'mask AP',
}
RANKING = ('mIoU', 'coco/bbox_mAP', 'coco/segm_mAP', 'accuracy/top1', 'aAcc', 'mAcc')
"""The order in which metrics are shown."""
_SIZES = {'50': '50', '75': '75', 's': 'small', 'm': 'medium', 'l': 'large'}
_PRECISION = re.compile(r'(?:^|/)(bbox|segm)_m?AP(?:_(\w+))?$')


def ranked(metrics: Iterable[str], first: str | None = None) -> list[str]:
    """Return metrics in the order in which they are shown.

    Args:
        metrics: Their keys.
        first: The key to begin with, if it is one of them.
    """
    known = list(metrics)
    return [name for name in dict.fromkeys((first, *RANKING, *known)) if name in known]


def points(metric: str, value: float) -> float:
    """A value in points: AP times 100, others as they are."""
    return value * 100 if _PRECISION.search(metric) else value


def is_defined(metric: str, value: float | None) -> bool:
    """Whether a value counts: not None, not NaN, and not the -1 with which COCO marks an AP of no objects."""
    return value is not None and math.isfinite(value) and not (value == -1 and _PRECISION.search(metric))


def show(metric: str, value: float | None) -> str:
    """A value as text, in points with two decimals; a dash where it is undefined."""
    return f'{points(metric, value):.2f}' if is_defined(metric, value) else '-'


def label(metric: str) -> str:
    """How a metric is called in a table: 'box AP small' for 'coco/bbox_mAP_s'; its key where it has no such name."""
    if metric in LABELS:
        return LABELS[metric]
    found = _PRECISION.search(metric)
    if not found or found[2] not in _SIZES:
        return metric
    return f'{LABELS[f"{found[1]}_AP"]} {_SIZES[found[2]]}'


def task_of(metrics) -> str | None:
    """The task whose first metric is among these names; None for none of them."""
    return next((task for task, names in TASKS.items() if names[0] in metrics), None)
