"""Re-root the data of a config, and take the classes from the data there."""

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

from mmengine import Config

from mmlape.console.log import log
from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.formats import SPLITS, datasets_of, iter_sources, metrics_of
from mmlape.lab.datasets.formats.base import DataSource, below_here

# their num_classes, if any, is not the dataset's
NOT_HEADS = ('rpn_head', 'semantic_head', 'teacher')
_READERS = [f'{split}_{part}' for split in SPLITS for part in ('dataloader', 'evaluator')]


def retarget_data(cfg: Config, data_root: str | os.PathLike) -> list[str]:
    """Re-root the data of ``cfg``, in place, and set its classes and every head's number of classes from the data.

    A path of a data loader, an evaluator or a tokeniser that starts with ``cfg.data_root``, or with
    the root that all datasets share, then starts with the new root. Class names are those of
    `DataSource.read_classes`; where the data lists none, the config's classes stay. Heads are all
    dicts of ``cfg.model`` with ``num_classes`` or, without stuff classes, ``num_things_classes``,
    except those below ``rpn_head``, ``semantic_head`` or ``teacher``. Return the changes, one line
    each; they are logged too.

    Raises:
        ConfigError: No path of the config starts with its ``data_root``, or a head of other classes
            weights each one differently.
        DataError: The directory or its annotations are missing or unreadable, or two splits have
            different classes.
    """
    old, new = _root(cfg), str(data_root).rstrip('/') or '/'
    if not old:
        raise ConfigError(
            f'{cfg.filename or "The config"} has no variable data_root, and its datasets have no one data_root, so '
            'its data cannot be moved.'
        )
    if not os.path.isdir(new):
        source = next(iter_sources(cfg), None)
        raise DataError(f'Data root {new} does not exist{below_here(new)}. {source.hint() if source else ""}')
    visited: set[int] = set()
    moved = sum(reroot(cfg.get(key), old, new, visited) for key in _READERS)
    reroot((cfg.get('model') or {}).get('tokenizer'), old, new, visited)  # its vocabulary
    if not moved:
        raise ConfigError(f'No dataset of {cfg.filename or "the config"} is below its data_root {old}.')
    cfg.data_root = new
    changes = [f'data root: {old} -> {new}', *_take_classes(cfg)]
    for change in changes:
        log(change)
    return changes


def _root(cfg: Config) -> str:
    """Return the root of a config's data: its variable, else that of its datasets if they have one; '' if not."""
    datasets = [dataset for split in SPLITS for dataset in datasets_of(cfg, split)]
    roots = {str(dataset.get('data_root') or '').rstrip('/') for dataset in datasets}
    return str(cfg.get('data_root') or '').rstrip('/') or (roots.pop() if len(roots) == 1 else '')


def has_data_below(cfg: Config, root: str) -> bool:
    """Return whether a path of a data loader or an evaluator starts with a root."""
    parts = {key: copy.deepcopy(cfg.get(key)) for key in _READERS}
    root = root.rstrip('/')
    return bool(root and reroot(parts, root, root, set()))


def reroot(node: Any, old: str, new: str, visited: set[int]) -> int:
    """Replace the root in every string below ``node``, in place, in shared parts once.

    Return how many.
    """
    if not isinstance(node, (dict, list)) or id(node) in visited:
        return 0
    visited.add(id(node))
    moved = 0
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, str) and (value.rstrip('/') == old or value.startswith(f'{old}/')):
            node[key] = new.rstrip('/') + value[len(old) :] if value != old else new
            moved += 1
        else:
            moved += reroot(value, old, new, visited)
    return moved


def _take_classes(cfg: Config) -> list[str]:
    sources = list(iter_sources(cfg))
    bound = {split: reads_head(cfg, split) for split in SPLITS}
    changes, classes = _agree([source for source in sources if bound[source.split]])
    others, _ = _agree([source for source in sources if not bound[source.split]])
    changes += others
    if not classes:
        return changes
    for name, head, key in iter_heads(cfg):
        if head[key] != len(classes):
            changes.append(f'{name}: {head[key]} -> {len(classes)}')
            set_num_classes(name, head, key, len(classes))
    return [*changes, *_limit_top_k(cfg, len(classes))]


def _agree(sources: list[DataSource]) -> tuple[list[str], tuple[str, ...]]:
    """Give datasets the classes that are found in their data.

    Return the changes and the classes, () for none.
    """
    listed = [(source, classes) for source in sources if (classes := source.read_classes())]
    if not listed:
        for source in sources:
            source.check_unlisted_classes()
        return [], ()
    first, classes = listed[0]
    for source, names in listed:
        if names != classes:
            difference = sorted(set(names) ^ set(classes)) or 'their order'
            where = f'{first.split} and {source.split} data in {source.root}'
            fix = f' {source.absent_class}' * bool(source.absent_class)
            raise DataError(f'{where} have different classes: {difference}.{fix}')
    others = [source for source in sources if source.classes != classes]
    for source in others:
        source.set_classes(classes)
    if not others:
        return [], classes
    splits = ', '.join(dict.fromkeys(source.split for source in others))
    return [f'{splits} data: {len(classes)} classes, {", ".join(classes)}'], classes


def _limit_top_k(cfg: Config, num_classes: int) -> list[str]:
    """Remove top-k accuracies with k above the number of classes, on which the metric would fail.

    Keep top-1.
    """
    changes = []
    for split in SPLITS:
        for metric, evaluator in metrics_of(cfg, split):
            bases = getattr(metric, '__mro__', ())
            topk = evaluator.get('topk') if any(base.__name__ == 'Accuracy' for base in bases) else None
            ks = (topk,) if isinstance(topk, int) else tuple(topk or ())
            if max(ks, default=0) > num_classes:
                evaluator['topk'] = tuple(k for k in ks if k <= num_classes) or (1,)
                changes.append(f'{split}_evaluator.topk: {ks} -> {evaluator["topk"]}')
    return changes


def iter_heads(cfg: Mapping) -> Iterator[tuple[str, dict, str]]:
    """Yield (dotted name, dict, key) of every number of classes in the model and its data preprocessor.

    The key is ``num_classes``, or ``num_things_classes`` where ``num_stuff_classes`` is 0:
    MMDetection's Mask2Former for instances. Panoptic heads are left out.
    """
    for key in ('model', 'data_preprocessor'):
        yield from _with_num_classes(key, cfg.get(key))


def _with_num_classes(name: str, node: Any) -> Iterator[tuple[str, dict, str]]:
    if isinstance(node, dict):
        key = 'num_things_classes' if node.get('num_stuff_classes') == 0 else 'num_classes'
        if isinstance(node.get(key), int):
            yield f'{name}.{key}', node, key
        for key, value in node.items():
            if key not in NOT_HEADS:
                yield from _with_num_classes(f'{name}.{key}', value)
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from _with_num_classes(f'{name}[{index}]', value)


def set_num_classes(name: str, head: dict, key: str, count: int) -> None:
    """Set a number of classes of `iter_heads`, with the class weights of ``loss_cls`` that end with 'no object'.

    Raises:
        ConfigError: The weights are a list with different ones for the classes.
    """
    loss = head.get('loss_cls')
    weights = loss.get('class_weight') if isinstance(loss, dict) else None
    if isinstance(weights, (list, tuple)) and len(weights) == head[key] + 1 != count + 1:
        if len(set(weights[:-1])) > 1:
            raise ConfigError(
                f'{name} cannot be set to {count}: the loss_cls.class_weight beside it has '
                f'different weights for {head[key]} classes. Set both in the config; the last one '
                f'of {count + 1} weights is for no object.'
            )
        loss['class_weight'] = [weights[0]] * count + [weights[-1]]
    head[key] = count


def reads_head(cfg: Config, split: str) -> bool:
    """Return whether a split's classes are those of the heads: not where all its metrics have ``reads_head = False``.

    Few-shot accuracy is such a metric: a model is evaluated on classes that it was not trained on.
    """
    metrics = [metric for metric, _ in metrics_of(cfg, split)]
    return not metrics or any(getattr(metric, 'reads_head', True) for metric in metrics)
