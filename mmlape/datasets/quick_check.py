"""The quick check of a config's data, before a model is built: one clear message instead of a crash later.

It covers paths, class names, every record of an annotation file, and a sample of the images. What is left shows while
training, in the transforms that `mmlape.datasets.transforms.guard_loading` puts in; `mmlape.datasets.full_check`
checks everything.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence

from mmengine import Config
from mmengine.logging import print_log

from mmlape.datasets.formats import distinct, iter_sources
from mmlape.datasets.formats.base import ERROR, DataIssue, DataSource, DataSummary, IssueLog
from mmlape.datasets.sources import SPLITS, iter_heads, patch_size, reads_head, spread
from mmlape.errors import DataError

SAMPLE = 32  # images that are opened


def check_data(
    cfg: Config, splits: Sequence[str] = SPLITS, sources: Iterable[DataSource] | None = None
) -> list[DataSummary]:
    """Check the datasets, heads and evaluators of a config's splits against the files on disk.

    Return and log a summary of each dataset. Datasets of unknown format and on remote storage are skipped.

    Raises:
        DataError: The first error: a path, a class, a label id or an image, and how to fix it.
    """
    summaries, warnings, smallest = [], IssueLog(), patch_size(cfg)
    for source in distinct(iter_sources(cfg, splits) if sources is None else sources):
        if source.split in splits:
            for issue in _issues(source, smallest):
                if issue.severity == ERROR:
                    raise DataError(issue.message)
                warnings.add(source.split, [issue])
            summaries.append(source.summary)
            print_log(str(source.summary), logger='current')
            check_heads(cfg, source)
    for split in splits:
        check_evaluator(cfg.get(f'{split}_evaluator'), split)
    for group in warnings:
        print_log(f'{group.split} data: {group}', logger='current', level=logging.WARNING)
    return summaries


def _issues(source: DataSource, smallest: int) -> Iterator[DataIssue]:
    """Check the structure and a sample of the images."""
    yield from source.structure_issues(complete=False)
    for entry in spread(source.entries, SAMPLE):
        facts = source.check_image(entry, smallest)
        yield from facts.issues
        source.count(facts)


def check_heads(cfg: Config, source: DataSource) -> None:
    """Raise DataError if a head has another number of outputs than the data has classes."""
    if not reads_head(cfg.get(f'{source.split}_evaluator'), cfg.get('default_scope')):
        return
    expected = len(source.classes) if source.classes else source.summary.num_classes
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
