"""Names, order and unit of the metrics in tables and figures.

The unit is the point, a hundredth: COCO's AP and AR, recorded in [0, 1], are multiplied by 100;
mIoU and accuracies are recorded in percent already. A run records what the metric returned.

Single classes' values have the keys ``per_class/<measure>/<class>``, after a metric's prefix.
MMEngine logs every key of every validation, and ADE20K has 300 of these, so
`mmlape.lab.training.hooks.PerClassHook`, which every run of this package has, removes them before the log
is written.
"""

import math
import re
from collections.abc import Container, Iterable

from mmlape.lab.extension import extensions

TASK_METRICS = {
    'detection': ('coco/bbox_mAP', 'coco/segm_mAP'),
    'segmentation': ('mIoU',),
    'classification': ('accuracy/top1', 'crop_1.0/accuracy/top1'),
}
"""The metrics that the papers compare for each task, the main one first."""

KEYS = {'box AP': 'coco/bbox_mAP', 'mask AP': 'coco/segm_mAP', 'mIoU': 'mIoU', 'top-1': 'accuracy/top1'} | {
    name: key for one in extensions() for name, key in one.metrics.items()
}
"""The keys of the metrics that papers are quoted for, by the paper's name."""

LABELS = {key: name for name, key in KEYS.items()} | {
    'accuracy/top5': 'top-5',
    'crop_1.0/accuracy/top1': 'top-1, crop 1.0',
    'crop_1.0/accuracy/top5': 'top-5, crop 1.0',
    'bbox_AP': 'box AP',
    'segm_AP': 'mask AP',
}
"""The names that differ from the keys."""

RANKING = ('mIoU', 'coco/bbox_mAP', 'coco/segm_mAP', 'accuracy/top1', 'crop_1.0/accuracy/top1', 'aAcc', 'mAcc')
"""The metrics that a short table shows, the most important first."""

_SIZES = {'50': '50', '75': '75', 's': 'small', 'm': 'medium', 'l': 'large'}
_COCO = re.compile(r'(?:^|/)(bbox|segm)_(?:m?AP(?:_(\w+))?|AR(?:_[sml])?@\d+)$')


def ranked(metrics: Iterable[str], first: str | None = None) -> list[str]:
    """Return metrics in the order in which they are shown.

    Args:
        metrics: Their keys.
        first: The key to begin with, if it is one of them.
    """
    given = list(metrics)
    return [name for name in dict.fromkeys((first, *RANKING, *given)) if name in given]


def points(metric: str, value: float) -> float:
    """Convert a value to points: AP and AR times 100, others unchanged."""
    return value * 100 if _COCO.search(metric) else value


def is_defined(metric: str, value: float | None) -> bool:
    """Return whether a value is defined: not None, not NaN, and not COCO's -1 for an AP or AR without objects."""
    return value is not None and math.isfinite(value) and not (value == -1 and _COCO.search(metric))


def show(metric: str, value: float | None) -> str:
    """Format a value in points with two decimals; a dash where it is undefined."""
    return f'{points(metric, value):.2f}' if is_defined(metric, value) else '-'


def label(metric: str) -> str:
    """Return a metric's name in tables: 'box AP small' for 'coco/bbox_mAP_s'.

    Its key where it has no name.
    """
    if metric in LABELS:
        return LABELS[metric]
    match = _COCO.search(metric)
    if not match or match[2] not in _SIZES:
        return metric
    return f'{LABELS[f"{match[1]}_AP"]} {_SIZES[match[2]]}'


def task_of(metrics: Container[str]) -> str | None:
    """Return the task whose main metric is among these keys; None without one."""
    return next((task for task, names in TASK_METRICS.items() if names[0] in metrics), None)


PREFIX = 'per_class/'


def flatten_per_class(tables: dict[str, dict[str, float]]) -> dict[str, float]:
    """Turn ``{measure: {class: value}}`` into metric keys."""
    return {f'{PREFIX}{measure}/{name}': value for measure, row in tables.items() for name, value in row.items()}


def split_per_class(metrics: dict) -> dict[str, dict[str, float]]:
    """Remove the values of single classes from ``metrics``, in place.

    Returns:
        ``{measure: {class: value}}`` in their order.
    """
    tables: dict[str, dict[str, float]] = {}
    for key in [key for key in metrics if PREFIX in key]:
        measure, _, name = key.partition(PREFIX)[2].partition('/')
        tables.setdefault(measure, {})[name] = metrics.pop(key)
    return tables
