"""What is checked of a config: each of its datasets, its heads and its evaluators."""

import os
from collections.abc import Iterator, Sequence

from mmengine import Config

from mmlape.datasets.checks.arrays import CifarCheck, FashionMNISTCheck
from mmlape.datasets.checks.base import DatasetCheck
from mmlape.datasets.checks.coco import CocoCheck
from mmlape.datasets.checks.folder import FolderCheck, SunCheck
from mmlape.datasets.checks.segmentation import SegmentationCheck
from mmlape.datasets.formats import (
    CifarSource,
    CocoSource,
    FashionMNISTSource,
    FolderSource,
    SegmentationSource,
    SunSource,
    iter_sources,
)
from mmlape.datasets.heads import iter_heads, patch_size, reads_head
from mmlape.datasets.sources import DataSource
from mmlape.errors import DataError

CHECKS: dict[type[DataSource], type[DatasetCheck]] = {
    CocoSource: CocoCheck,
    SegmentationSource: SegmentationCheck,
    FolderSource: FolderCheck,
    SunSource: SunCheck,
    CifarSource: CifarCheck,
    FashionMNISTSource: FashionMNISTCheck,
}
"""The check of each dataset format and of its subclasses."""


def iter_checks(cfg: Config, splits: Sequence[str], complete: bool = False) -> Iterator[DatasetCheck]:
    """Yield a check of each local dataset of known format; a dataset that two splits share is checked once."""
    done, smallest = set(), patch_size(cfg)
    for source in iter_sources(cfg, splits):
        options = source.option('test_mode'), source.option('split')
        key = (source.ann_file, source.image_dir, source.label_dir, source.classes, *options)
        check_class = next((CHECKS[base] for base in type(source).__mro__ if base in CHECKS), None)
        if check_class and source.is_local and key not in done:
            done.add(key)
            yield check_class(source, smallest, complete)


def check_heads(cfg: Config, source: DataSource, num_classes: int) -> None:
    """Raise DataError if a head has another number of outputs than the data has classes."""
    if not reads_head(cfg, source.split):
        return
    expected = len(source.classes) if source.classes else num_classes
    for name, head in iter_heads(cfg):
        if expected and head['num_classes'] != expected:
            raise DataError(
                f'{name}.num_classes is {head["num_classes"]}, but the {source.split} data in '
                f'{source.root or source.image_dir} has {expected} classes: set {name}.num_classes={expected}, or '
                f'pass --cfg-options data_root={source.root.rstrip("/")}, which sets it everywhere.'
            )


def check_evaluator(evaluator: dict | list | None, split: str) -> None:
    """Raise DataError if an annotation file of a split's evaluators does not exist."""
    for part in evaluator if isinstance(evaluator, (list, tuple)) else [evaluator]:
        path = (part or {}).get('ann_file')
        if isinstance(path, str) and '://' not in path and not os.path.isfile(path):
            raise DataError(
                f'Annotation file {path} of {split}_evaluator does not exist. It must be that of the {split} '
                'dataset; --cfg-options data_root=DIR moves both.'
            )
