"""The dataset formats that can be checked and re-rooted.

COCO's, ADE20K's, ImageNet's, CIFAR's and others. A format of your own is a subclass of
`DataSource`, which the module of its dataset puts into `FORMATS`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mmengine import Config

from mmlape.lab.datasets.formats.base import DataSource
from mmlape.lab.datasets.formats.classification import CifarSource, FolderSource, SunSource
from mmlape.lab.datasets.formats.coco import CocoSource
from mmlape.lab.datasets.formats.segmentation import SegmentationSource
from mmlape.lab.registry import class_of, resolve_class

SPLITS = ('train', 'val', 'test')
FORMATS: dict[str, type[DataSource]] = {
    'CocoDataset': CocoSource,
    'BaseSegDataset': SegmentationSource,
    'CustomDataset': FolderSource,
    'SUN397': SunSource,
    'CIFAR10': CifarSource,
}
"""The format of the dataset classes of these names, and of their subclasses that read the same
files."""
READERS = ('load_data_list', 'parse_data_info')
"""A subclass that overrides one of these reads files of its own, as panoptic ones and LVIS's do."""


def iter_sources(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[DataSource]:
    """Yield the datasets of known format of a config's data loaders, without wrappers such as RepeatDataset."""
    scope = cfg.get('default_scope')
    for split in splits:
        datasets = datasets_of(cfg, split)
        for dataset in datasets:
            cls = resolve_class(dataset.get('type'), scope, 'DATASETS')
            source_class = _format_of(cls) if cls else None
            if source_class:
                source = source_class(split, dataset, cls)
                source.is_part = len(datasets) > 1
                source.metrics = list(metrics_of(cfg, split))
                pipeline = dataset.get('pipeline') or ()
                source.steps = [(class_of(step, scope, 'TRANSFORMS'), step) for step in pipeline]
                source.mini_data_options = str(cfg.get('mini_data_options') or '')
                yield source


def metrics_of(cfg: Config, split: str) -> Iterator[tuple[type | None, dict]]:
    """Yield the class and the options of each metric of a split."""
    evaluators = cfg.get(f'{split}_evaluator')
    for part in [evaluators] if isinstance(evaluators, dict) else evaluators or ():
        if 'type' in part:
            yield resolve_class(part['type'], cfg.get('default_scope'), 'METRICS'), part


def _format_of(cls: type) -> type[DataSource] | None:
    """Return the format of a dataset class; None if it is unknown."""
    for base in cls.__mro__:
        if base.__name__ in FORMATS:
            return FORMATS[base.__name__]
        if any(name in vars(base) for name in READERS):
            return None
    return None


def distinct(sources: Iterable[DataSource]) -> list[DataSource]:
    """Return the datasets on this machine; one that two splits share once, with the metrics of both.

    They share it if they read the same files, of the same classes, with the same options.
    """
    found: dict[tuple, DataSource] = {}
    for source in sources:
        given = {name: value for name, value in source.cfg.items() if name != 'metainfo'}
        options = source.option('test_mode'), source.option('split'), repr(given)
        key = source.ann_file, source.image_dir, source.label_dir, source.classes, *options
        if source.is_local:
            first = found.setdefault(key, source)
            others = [one for one in source.metrics if one not in first.metrics]
            first.metrics = [*first.metrics, *others]
    return list(found.values())


def datasets_of(cfg: Mapping, split: str) -> list[dict]:
    """Return the configs of the datasets of a split, without wrappers."""
    dataset = (cfg.get(f'{split}_dataloader') or {}).get('dataset')
    return list(iter_unwrapped(dataset)) if dataset else []


def iter_unwrapped(dataset: dict) -> Iterator[dict]:
    """Yield the configs of the datasets inside wrappers such as RepeatDataset and ConcatDataset."""
    inner = dataset.get('datasets') or ([dataset['dataset']] if 'dataset' in dataset else None)
    if inner is None:
        yield dataset
    else:
        for part in inner:
            yield from iter_unwrapped(part)
