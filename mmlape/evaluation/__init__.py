"""Metrics: `mmlape.CocoMetric`, `mmlape.IoUMetric` with the values of each class, `FewShotMetric`, `CaptionRecall`.

Each is imported on first use: segmentation needs no MMDetection, and detection no MMSegmentation.
"""

from importlib import import_module

_MODULES = {'CaptionRecall': '.retrieval', 'CocoMetric': '.coco', 'FewShotMetric': '.few_shot', 'IoUMetric': '.iou'}

__all__ = ['CaptionRecall', 'CocoMetric', 'FewShotMetric', 'IoUMetric']


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(_MODULES[name], __name__), name)
