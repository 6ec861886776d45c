"""Metrics: `mmlape.CocoMetric`, `mmlape.IoUMetric` with the values of each class.

Each is imported on first use: segmentation needs no MMDetection, and detection no MMSegmentation.
"""

from importlib import import_module

_MODULES = {'CocoMetric': '.coco', 'IoUMetric': '.iou'}

__all__ = ['CocoMetric', 'IoUMetric']


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(_MODULES[name], __name__), name)
