"""What of a config must fit the data: the heads' numbers of classes, the patch size, the evaluators' files."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine import Config

from mmlape.datasets.formats.base import DataSource
from mmlape.datasets.sources import default_argument, resolve_class
from mmlape.errors import DataError

NOT_HEADS = ('rpn_head', 'teacher')  # their num_classes, if any, is not the dataset's


def iter_heads(cfg: Config) -> Iterator[tuple[str, dict]]:
    """Yield (dotted name, dict) of every dict with ``num_classes`` in the model and its data preprocessor."""
    for key in ('model', 'data_preprocessor'):
        yield from _with_num_classes(key, cfg.get(key))


def _with_num_classes(name: str, node: Any) -> Iterator[tuple[str, dict]]:
    if isinstance(node, dict):
        if isinstance(node.get('num_classes'), int):
            yield name, node
        for key, value in node.items():
            if key not in NOT_HEADS:
                yield from _with_num_classes(f'{name}.{key}', value)
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from _with_num_classes(f'{name}[{index}]', value)


def reads_head(evaluators: dict | Sequence[dict] | None, default_scope: str | None) -> bool:
    """Return whether a split's classes are those of the heads: not where all its metrics have ``reads_head = False``.

    Few-shot accuracy is such a metric: a model is evaluated on classes that it was not trained on.
    """
    parts = [evaluators] if isinstance(evaluators, dict) else evaluators or []
    metrics = [resolve_class(part['type'], default_scope, 'METRICS') for part in parts if 'type' in part]
    return not metrics or any(getattr(metric, 'reads_head', True) for metric in metrics)


def patch_size(cfg: Config) -> int:
    """Return the side of the backbone's patches, its default where the config has none; 1 without patches."""
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    size = backbone.get('patch_size')
    if size is None and 'type' in backbone:
        cls = resolve_class(backbone['type'], cfg.get('default_scope'), 'MODELS')
        size = default_argument(cls, 'patch_size') if cls else None
    return max(size) if isinstance(size, (list, tuple)) else size or 1


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
