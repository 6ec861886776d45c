"""The quick check of a config's data, before a model is built: one clear message instead of a crash later.

It covers paths, class names, every record of a small annotation file, and a sample of the images. A big annotation
file is read in part, so that even COCO's takes about a second. What is left shows while training, in the transforms
that `mmlape.datasets.transforms.guard_loading` puts in; `mmlape.datasets.checks.full` checks everything.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from mmengine import Config
from mmengine.logging import print_log

from mmlape.datasets.formats import distinct, iter_sources
from mmlape.datasets.formats.base import DataSource, DataSummary
from mmlape.datasets.heads import check_evaluator, check_heads, patch_size
from mmlape.datasets.issues import ERROR, DataIssue, IssueLog
from mmlape.datasets.sources import SPLITS, spread
from mmlape.errors import DataError

SAMPLE = 32  # images that are opened


def check_data(
    cfg: Config, splits: Sequence[str] = SPLITS, sources: Iterable[DataSource] | None = None
) -> list[DataSummary]:
    """Check the datasets, heads and evaluators of a config against the files on disk.

    Args:
        cfg: A config with ``train_dataloader``, ``val_dataloader`` or ``test_dataloader``.
        splits: Which of 'train', 'val', 'test' to check.
        sources: The datasets of ``cfg``, if they are known already.

    Returns:
        A summary of each dataset, also logged. Datasets of unknown format and on remote storage are skipped.

    Raises:
        DataError: The first error: a path, a class, a label id or an image, and how to fix it.
    """
    summaries, warnings, smallest = [], IssueLog(), patch_size(cfg)
    for source in distinct(iter_sources(cfg, splits) if sources is None else sources):
        if source.split in splits:
            warnings.add(source.split, _raise_errors(_issues(source, smallest)))
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


def _raise_errors(issues: Iterable[DataIssue]) -> Iterator[DataIssue]:
    for issue in issues:
        if issue.severity == ERROR:
            raise DataError(issue.message)
        yield issue
