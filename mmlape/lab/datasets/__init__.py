"""Datasets: checks before training, loading transforms that name a broken file, windows of images, the mini data.

What registries get is imported on first use: segmentation needs no MMDetection.
"""

from mmlape.lazy import attributes

_MODULES = {'RandomCrop': 'crops', 'WindowDataset': 'transforms'}
__all__ = ['RandomCrop', 'WindowDataset']
__getattr__, __dir__ = attributes(__name__, _MODULES)
