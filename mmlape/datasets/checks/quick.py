"""The quick check of a config's data, before a model is built: one clear message instead of a crash later.

It covers paths, class names, every record of a small annotation file, and a sample of the images. A big annotation
file is read in part, so that even COCO's takes about a second. What is left shows while training, in the transforms
that `mmlape.datasets.transforms.guard_loading` puts in; `mmlape.datasets.checks.full` checks everything.
"""

import logging
from collections.abc import Iterable, Sequence

from mmengine import Config
from mmengine.logging import print_log

from mmlape.datasets.checks.base import DatasetCheck, DataSummary, spread
from mmlape.datasets.checks.config import check_evaluator, check_heads, iter_checks
from mmlape.datasets.checks.issues import ERROR, DataIssue, IssueLog
from mmlape.datasets.sources import SPLITS
from mmlape.errors import DataError

SAMPLE = 32  # images that are opened


def check_data(cfg: Config, splits: Sequence[str] = SPLITS) -> list[DataSummary]:
    """Check the datasets, heads and evaluators of a config against the files on disk.

    Args:
        cfg: A config with ``train_dataloader``, ``val_dataloader`` or ``test_dataloader``.
        splits: Which of 'train', 'val', 'test' to check.

    Returns:
        A summary of each dataset, also logged. Datasets of unknown format and on remote storage are skipped.

    Raises:
        DataError: The first error: a path, a class, a label id or an image, and how to fix it.
    """
    summaries, warnings = [], IssueLog()
    for check in iter_checks(cfg, splits):
        _check_sample(check, warnings)
        summaries.append(check.summary)
        print_log(str(check.summary), logger='current')
        check_heads(cfg, check.source, check.summary.num_classes)
    for split in splits:
        check_evaluator(cfg.get(f'{split}_evaluator'), split)
    for group in warnings:
        print_log(f'{group.split} data: {group}', logger='current', level=logging.WARNING)
    return summaries


def _check_sample(check: DatasetCheck, warnings: IssueLog) -> None:
    """Check the structure and a sample of the images."""
    split = check.source.split
    warnings.add(split, _raise_errors(check.structure_issues()))
    for entry in spread(check.entries, SAMPLE):
        facts = check.check_image(entry)
        warnings.add(split, _raise_errors(facts.issues))
        check.count(facts)


def _raise_errors(issues: Iterable[DataIssue]) -> Iterable[DataIssue]:
    for issue in issues:
        if issue.severity == ERROR:
            raise DataError(issue.message)
        yield issue
