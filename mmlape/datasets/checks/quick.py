"""Looks at the data of a config before a model is built, so that bad data is one clear message and not a crash later.

The look is short: paths, class names, every record of a small annotation file, and a sample of the pictures. A big
annotation file is read in part, so that even COCO's takes about a second. What only shows while training is caught by
the loading transforms that `guard_loading` puts in; `mmlape.datasets.checks.full` looks at everything.
"""

import logging
import os
from collections.abc import Iterator, Sequence

from mmengine import Config
from mmengine.logging import print_log

from mmlape.datasets.checks.base import ERROR, DataSummary, Look, Problem, spread
from mmlape.datasets.checks.coco import CocoLook
from mmlape.datasets.checks.findings import Findings
from mmlape.datasets.checks.folder import FolderLook
from mmlape.datasets.checks.segmentation import SegmentationLook
from mmlape.datasets.retarget import retarget_data
from mmlape.datasets.sources import SPLITS, DataSource, iter_heads, iter_sources
from mmlape.errors import DataError

__all__ = ['DataSummary', 'check_data', 'guard_loading', 'retarget_data']

LOOKS: dict[str, type[Look]] = {'coco': CocoLook, 'segmentation': SegmentationLook, 'folder': FolderLook}
SAMPLE = 32  # pictures that are opened
VIT_TYPES = ('VisionTransformer', 'DistilledVisionTransformer', 'ViTAdapter')


def check_data(cfg: Config, splits: Sequence[str] = SPLITS) -> list[DataSummary]:
    """Checks the data sets, evaluators and heads of a config against the files on disk.

    Args:
        cfg: A config with `train_dataloader`, `val_dataloader` or `test_dataloader`.
        splits: Which of 'train', 'val', 'test' to check.

    Returns:
        One summary a data set, also logged. Data sets of unknown classes and on remote storage are passed over.

    Raises:
        DataError: The first thing found wrong: a path, a class, a label id, a picture, and the way out.
    """
    summaries, warnings = [], Findings()
    for look in iter_looks(cfg, splits):
        summary = _look_briefly(look, warnings)
        summaries.append(summary)
        print_log(str(summary), logger='current')
        check_heads(cfg, look.source, summary.num_classes)
    for split in splits:
        check_evaluator(cfg.get(f'{split}_evaluator'), split)
    for finding in warnings:
        print_log(f'{finding.split} data: {finding}', logger='current', level=logging.WARNING)
    return summaries


def iter_looks(cfg: Config, splits: Sequence[str], whole: bool = False) -> Iterator[Look]:
    """A look at each local data set of known layout; at a data set that two splits share, once."""
    done, smallest = set(), patch_size(cfg)
    for source in iter_sources(cfg, splits):
        paths = (source.ann_file, source.image_dir, source.label_dir, source.classes, source.option('test_mode'))
        if source.is_local and paths not in done:
            done.add(paths)
            yield LOOKS[source.kind](source, smallest, whole)


def _look_briefly(look: Look, warnings: Findings) -> DataSummary:
    """Structure and a sample; the first error ends it."""
    for problem in look.structure():
        _end_or_note(problem, look, warnings)
    for item in spread(look.items, SAMPLE):
        facts = look.look(item)
        for problem in facts.problems:
            _end_or_note(problem, look, warnings)
        look.take(facts)
    return look.summary


def _end_or_note(problem: Problem, look: Look, warnings: Findings) -> None:
    if problem.severity == ERROR:
        raise DataError(problem.text)
    warnings.add(look.source.split, problem)


def guard_loading(cfg: Config) -> None:
    """Puts mmlape's loading transforms, whose errors name the file, in place of the MM packages', in `cfg`.

    For the config that the runner gets. Config files keep the plain names, which other tools look for.
    """
    smallest = patch_size(cfg)
    for source in iter_sources(cfg):
        for step in source.cfg.get('pipeline') or ():
            name = step.get('type')
            if name in ('LoadImageFromFile', 'mmlape.LoadImageFromFile'):
                step.update(type='mmlape.LoadImageFromFile', smallest=smallest)
            elif source.kind == 'segmentation' and name in ('LoadAnnotations', 'mmseg.LoadAnnotations'):
                step.update(type='mmlape.LoadSegAnnotations', num_classes=len(source.classes or ()) or 255)


def patch_size(cfg: Config) -> int:
    """Side of the backbone's patches; 1 where it has none."""
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    default = 16 if str(backbone.get('type')).rpartition('.')[2] in VIT_TYPES else 1
    size = backbone.get('patch_size', default)
    return max(size) if isinstance(size, (list, tuple)) else size


def check_heads(cfg: Config, source: DataSource, num_classes: int) -> None:
    """Raises DataError if a head has another number of outputs than the data has classes."""
    expected = len(source.classes) if source.classes else num_classes
    for name, head in iter_heads(cfg):
        if expected and head['num_classes'] != expected:
            raise DataError(
                f'{name}.num_classes is {head["num_classes"]}, but the {source.split} data in '
                f'{source.root or source.image_dir} has {expected} classes: set {name}.num_classes={expected}, or '
                f'pass --cfg-options data_root={source.root.rstrip("/")}, which sets it everywhere.'
            )


def check_evaluator(evaluator: dict | list | None, split: str) -> None:
    """Raises DataError if an annotation file of an evaluator is not there."""
    for part in evaluator if isinstance(evaluator, (list, tuple)) else [evaluator]:
        path = (part or {}).get('ann_file')
        if isinstance(path, str) and '://' not in path and not os.path.isfile(path):
            raise DataError(
                f'Annotation file {path} of {split}_evaluator does not exist. It must be the one of the {split} data '
                'set; --cfg-options data_root=DIR moves both.'
            )
