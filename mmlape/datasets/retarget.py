"""Points a config at data in another place, and takes the classes from what lies there."""

import os
from typing import Any

from mmengine import Config
from mmengine.logging import print_log

from mmlape.datasets.coco_file import read_coco
from mmlape.datasets.palette import class_palette
from mmlape.datasets.sources import SPLITS, DataSource, iter_heads, iter_sources, read_lines, subfolders
from mmlape.errors import ConfigError, DataError


def retarget_data(cfg: Config, data_root: str | os.PathLike) -> list[str]:
    """Re-roots the data of `cfg`, in place, and sets its classes and every head's `num_classes` from the data.

    A path of a data loader or an evaluator that starts with `cfg.data_root` then starts with the new root. Class names
    come from COCO's categories (in the file's order, which is MMDetection's), from ADE20K's `classes.txt`, or from the
    sub-folders of the ImageNet layout; where there is no such list the config's classes stay. Heads are all dicts of
    `cfg.model` with `num_classes`, except those below `rpn_head` or `teacher`.

    Args:
        cfg: A config with a variable `data_root`.
        data_root: An existing directory.

    Returns:
        What was changed, one line each; logged too.

    Raises:
        ConfigError: No path of the config starts with its `data_root`.
        DataError: The directory or its annotations are missing or unreadable, or two splits have different classes.
    """
    old, new = str(cfg.get('data_root') or '').rstrip('/'), str(data_root).rstrip('/') or '/'
    if not old:
        raise ConfigError(f'{cfg.filename or "The config"} has no variable data_root, so its data cannot be moved.')
    if not os.path.isdir(new):
        raise DataError(f'Data root {new} does not exist. {_how_to_get(cfg)}')
    seen: set[int] = set()
    keys = [f'{split}_{part}' for split in SPLITS for part in ('dataloader', 'evaluator')]
    moved = sum(_reroot(cfg.get(key), old, new, seen) for key in keys)
    if not moved:
        raise ConfigError(f'No data set of {cfg.filename or "the config"} lies below its data_root {old}.')
    cfg.data_root = new
    changes = [f'data root: {old} -> {new}', *_take_classes(cfg)]
    for change in changes:
        print_log(change, logger='current')
    return changes


def _how_to_get(cfg: Config) -> str:
    source = next(iter_sources(cfg), None)
    return source.way_out() if source else ''


def _reroot(node: Any, old: str, new: str, seen: set[int]) -> int:
    """Replaces the root in every string below `node`, in place; parts that are shared only once."""
    if not isinstance(node, (dict, list)) or id(node) in seen:
        return 0
    seen.add(id(node))
    moved = 0
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, str) and (value.rstrip('/') == old or value.startswith(f'{old}/')):
            node[key] = new.rstrip('/') + value[len(old) :] if value != old else new
            moved += 1
        else:
            moved += _reroot(value, old, new, seen)
    return moved


def _take_classes(cfg: Config) -> list[str]:
    sources = list(iter_sources(cfg))
    found = [(source, classes) for source in sources if (classes := _data_classes(source))]
    if not found:
        missing = next((source for source in sources if source.kind != 'segmentation'), None)
        if missing is not None and not missing.classes:
            raise DataError(f'No classes found for {missing.root}. {missing.way_out()}')
        return []
    first, classes = found[0]
    for source, names in found:
        if names != classes:
            difference = sorted(set(names) ^ set(classes)) or 'their order'
            raise DataError(
                f'{first.split} and {source.split} data in {source.root} have different classes: {difference}.'
            )
    others = [source for source in sources if source.classes != classes]
    for source in others:
        _set_classes(source, classes)
    splits = ', '.join(dict.fromkeys(source.split for source in others))
    changes = [f'{splits} data: {len(classes)} classes, {", ".join(classes)}'] if others else []
    for name, head in iter_heads(cfg):
        if head['num_classes'] != len(classes):
            changes.append(f'{name}.num_classes: {head["num_classes"]} -> {len(classes)}')
            head['num_classes'] = len(classes)
    return [*changes, *_limit_top_k(cfg, len(classes))]


def _limit_top_k(cfg: Config, classes: int) -> list[str]:
    """Leaves out a top-k accuracy that so few classes cannot have; the metric would fail after the first epoch."""
    changes = []
    for key in (f'{split}_evaluator' for split in SPLITS):
        evaluators = cfg.get(key) or []
        for evaluator in evaluators if isinstance(evaluators, list) else [evaluators]:
            wanted = evaluator.get('topk')
            if isinstance(wanted, (list, tuple)) and max(wanted) > classes:
                evaluator['topk'] = tuple(k for k in wanted if k <= classes)
                changes.append(f'{key}.topk: {tuple(wanted)} -> {evaluator["topk"]}')
    return changes


def _data_classes(source: DataSource) -> tuple[str, ...] | None:
    """The class names that the data itself carries, if it is there and carries any."""
    if source.kind == 'coco':
        return read_coco(source.ann_file).class_names if os.path.isfile(source.ann_file) else None
    if source.kind == 'segmentation':
        listed = os.path.join(source.root, 'classes.txt')
        return tuple(read_lines(listed)) if os.path.isfile(listed) else None
    if source.ann_file or not os.path.isdir(source.image_dir):
        return None
    names = tuple(subfolders(source.image_dir))
    kept = source.classes and not source.explicit and len(source.classes) == len(names)
    return source.classes if kept else names  # ImageNet's folders are codes, its class has the names


def _set_classes(source: DataSource, classes: tuple[str, ...]) -> None:
    """Names the classes in a data set's config, with colours.

    MMSegmentation's named data sets take only a choice of their own classes, so they become its BaseSegDataset.
    """
    cfg = source.cfg
    if source.kind == 'segmentation' and getattr(source.cls, 'METAINFO', {}).get('classes'):
        kept = {name: source.option(name) for name in ('img_suffix', 'seg_map_suffix', 'reduce_zero_label')}
        scope = str(cfg['type']).rpartition('.')[0]
        cfg.update(kept, type=f'{scope}.BaseSegDataset' if scope else 'BaseSegDataset')
    metainfo = dict(cfg.get('metainfo') or {})
    metainfo.update(classes=classes, palette=class_palette(len(classes)))
    cfg['metainfo'] = metainfo
