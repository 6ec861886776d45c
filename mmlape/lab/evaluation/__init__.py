"""Metrics: `mmlape.CocoMetric`, `mmlape.IoUMetric` with the values of each class.

Each is imported on first use: segmentation needs no MMDetection, and detection no MMSegmentation.
"""

from mmlape.lazy import attributes

_MODULES = {'CocoMetric': 'coco', 'IoUMetric': 'iou'}
__all__ = ['CocoMetric', 'IoUMetric']
__getattr__, __dir__ = attributes(__name__, _MODULES)
