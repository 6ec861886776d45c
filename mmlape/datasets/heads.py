"""The parts of a model's config that must fit the data: the heads' numbers of classes, and the patch size."""

from collections.abc import Iterator
from typing import Any

from mmengine import Config

from mmlape.datasets.sources import default_argument, resolve_class

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


def reads_head(cfg: Config, split: str) -> bool:
    """Return whether a split's classes are those of the heads: not where all its metrics have ``reads_head = False``.

    Few-shot accuracy is such a metric: a model is evaluated on classes that it was not trained on.
    """
    evaluators = cfg.get(f'{split}_evaluator') or [{}]
    evaluators = evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]
    metrics = [resolve_class(one['type'], cfg.get('default_scope'), 'METRICS') for one in evaluators if 'type' in one]
    return not metrics or any(getattr(metric, 'reads_head', True) for metric in metrics)


def patch_size(cfg: Config) -> int:
    """Return the side of the backbone's patches, its default where the config has none; 1 without patches."""
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    size = backbone.get('patch_size')
    if size is None and 'type' in backbone:
        cls = resolve_class(backbone['type'], cfg.get('default_scope'), 'MODELS')
        size = default_argument(cls, 'patch_size') if cls else None
    return max(size) if isinstance(size, (list, tuple)) else size or 1
