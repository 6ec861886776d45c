"""Metrics that keep every digit and every class: `mmlape.CocoMetric` and `mmlape.IoUMetric`."""

from .coco import CocoMetric
from .iou import IoUMetric

__all__ = ['CocoMetric', 'IoUMetric']
