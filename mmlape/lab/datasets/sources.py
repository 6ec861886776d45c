"""What the parts of a config stand for: classes by their names, datasets inside wrappers, heads, patches."""

import codecs
import colorsys
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from mmlape.errors import ConfigError, DataError

SPLITS = ('train', 'val', 'test')
# their num_classes, if any, is not the dataset's
NOT_HEADS = ('rpn_head', 'semantic_head', 'teacher')
# by which Windows' programs begin a text
MARKS = {codecs.BOM_UTF8: 'utf-8-sig', codecs.BOM_UTF16_LE: 'utf-16', codecs.BOM_UTF16_BE: 'utf-16'}
GOLDEN_RATIO = 0.618034  # of the hue circle, between one class and the next


def resolve_class(name: Any, default_scope: str | None, registry: str) -> type | None:
    """Find the class that a ``type`` of a config names in a registry such as 'DATASETS'.

    None if there is none.
    """
    if inspect.isclass(name):
        return name
    scope, _, bare = str(name).rpartition('.')
    cls = getattr(import_module(f'{scope or default_scope or "mmengine"}.registry'), registry).get(bare)
    return cls if inspect.isclass(cls) else None


def default_argument(cls: type[Any], name: str) -> Any:
    """Return the default of a constructor's argument, of the nearest base class that has one.

    None without any.
    """
    for base in cls.__mro__:
        parameter = inspect.signature(base.__init__).parameters.get(name)  # type: ignore[misc]
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None


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


def reads_head(evaluators: dict | Sequence[dict] | None, default_scope: str | None) -> bool:
    """Return whether a split's classes are those of the heads: not where all its metrics have ``reads_head = False``.

    Few-shot accuracy is such a metric: a model is evaluated on classes that it was not trained on.
    """
    parts = [evaluators] if isinstance(evaluators, dict) else evaluators or []
    metrics = [resolve_class(part['type'], default_scope, 'METRICS') for part in parts if 'type' in part]
    return not metrics or any(getattr(metric, 'reads_head', True) for metric in metrics)


def patch_size(cfg: Mapping) -> int:
    """Return the side of the backbone's patches, its default where the config has none.

    1 without patches.
    """
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    size = backbone.get('patch_size')
    if size is None and 'type' in backbone:
        cls = resolve_class(backbone['type'], cfg.get('default_scope'), 'MODELS')
        size = default_argument(cls, 'patch_size') if cls else None
    return max(size) if isinstance(size, (list, tuple)) else size or 1


def read_text(path: str | Path) -> str:
    """Read a text in UTF-8, or in the encoding that its byte order mark names.

    Raises:
        DataError: It is in another encoding; the message names the line.
    """
    content = Path(path).read_bytes()
    encoding = next((name for mark, name in MARKS.items() if content.startswith(mark)), 'utf-8')
    try:
        text = content.decode(encoding)
        end = text.index('\0') if '\0' in text else None  # UTF-16 or UTF-32 without a mark
    except UnicodeDecodeError as error:
        text, end = '', error.start
    if end is not None:
        line = content.count(b'\n', 0, end) + 1
        raise DataError(f'{path}, line {line}: no text in {encoding.upper()}. Save the file in UTF-8.')
    return text.replace('\r\n', '\n').replace('\r', '\n')


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a text file that are not blank, stripped."""
    return [line.strip() for line in read_text(path).split('\n') if line.strip()]


def read_listed(path: str | Path) -> list[str]:
    """Return the lines of a list that an OpenMMLab package reads, too, which takes each of them as it is.

    Raises:
        DataError: A line is blank, or the encoding is not UTF-8 without a mark.
    """
    text = read_text(path)
    lines = text.removesuffix('\n').split('\n') if text else []
    with open(path, 'rb') as file:
        marked = file.read(3).startswith(tuple(MARKS))
    if marked:
        raise DataError(
            f'{path} begins with a byte order mark, which OpenMMLab takes for a part of the first '
            'line. Save the file in UTF-8 without one.'
        )
    blank = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if blank is not None:
        raise DataError(f'{path}, line {blank} is blank, which OpenMMLab takes for a name: remove it.')
    return lines


def read_names(path: str | Path) -> tuple[str, ...]:
    """Read the names of classes, one a line, in the order of the labels.

    Raises:
        DataError: A line is blank, so that it is not known which label those after it have, or has
            a tab; or a name is there twice.
    """
    lines = [line.strip() for line in read_text(path).rstrip().split('\n')]
    for number, line in enumerate(lines, 1):
        if not line or '\t' in line:
            defect = 'has a tab' if line else 'is blank'
            raise DataError(
                f'{path}, line {number} {defect}: write the name of one class into each line, in the order of the ids.'
            )
    require_unique(lines, str(path))
    return tuple(lines)


def require_unique(names: Sequence[str], where: str) -> None:
    """Raise DataError if a class is named twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f'{where} names the class {", ".join(twice[:6])} more than once.')


def iter_unwrapped(dataset: dict) -> Iterator[dict]:
    """Yield the configs of the datasets inside wrappers such as RepeatDataset and ConcatDataset."""
    inner = dataset.get('datasets') or ([dataset['dataset']] if 'dataset' in dataset else None)
    if inner is None:
        yield dataset
    else:
        for part in inner:
            yield from iter_unwrapped(part)


def spread(items: Sequence, count: int) -> list:
    """Return up to ``count`` items, evenly spread from the first to the last."""
    picks = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[pick] for pick in picks]


def class_palette(count: int) -> list[list[int]]:
    """Return RGB colours of ``count`` classes: hues a golden angle apart, in three brightnesses."""
    colours = []
    for index in range(count):
        value = (1.0, 0.75, 0.55)[index % 3]
        red, green, blue = colorsys.hsv_to_rgb(index * GOLDEN_RATIO % 1, 0.85, value)
        colours.append([round(255 * channel) for channel in (red, green, blue)])
    return colours
