"""What a config says about its data sets: which files, which classes, which heads must fit them."""

import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mmengine import Config

SPLITS = ('train', 'val', 'test')
KINDS = {'CocoDataset': 'coco', 'BaseSegDataset': 'segmentation', 'CustomDataset': 'folder'}
NOT_HEADS = ('rpn_head', 'teacher')  # their num_classes, if any, is not the data set's
HOW_TO_GET = {
    'coco': (
        'COCO: unpack train2017.zip, val2017.zip and annotations_trainval2017.zip from https://cocodataset.org '
        'so that the data root holds train2017/, val2017/ and annotations/instances_{train,val}2017.json'
    ),
    'segmentation': (
        'ADE20K: unpack http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip so that the data root '
        'holds images/{training,validation}/*.jpg and annotations/{training,validation}/*.png'
    ),
    'folder': 'ImageNet layout: one sub-folder of images for each class, below train/ and val/ of the data root',
}
MINI_FOLDER = {'coco': 'coco', 'segmentation': 'ade', 'folder': 'digits'}


@dataclass
class DataSource:
    """One data set of a config, with its paths resolved.

    Args:
        split: 'train', 'val' or 'test'.
        cfg: The data set's own part of the config, to be read or changed.
        kind: 'coco', 'segmentation' or 'folder'.
        cls: The class that `cfg` builds.
        root: Its data root; may be ''.
        ann_file: Annotation file or list; '' where it has none.
        image_dir: Where its images are.
        label_dir: Where its label maps are; '' where it has none.
        classes: Class names in label order; None where only the data tells.
        explicit: Whether the config, not the class, names the classes.
    """

    split: str
    cfg: dict
    kind: str
    cls: type
    root: str
    ann_file: str
    image_dir: str
    label_dir: str
    classes: tuple[str, ...] | None
    explicit: bool

    @property
    def is_local(self) -> bool:
        """Whether its paths are on this machine's file system."""
        return not any('://' in path for path in (self.root, self.ann_file, self.image_dir))

    def option(self, name: str) -> Any:
        """An argument's value: the config's, or the default of the nearest class that has one."""
        if name in self.cfg:
            return self.cfg[name]
        for cls in self.cls.__mro__:
            parameter = inspect.signature(cls.__init__).parameters.get(name)
            if parameter is not None and parameter.default is not parameter.empty:
                return parameter.default
        return None

    def has_transform(self, **options: Any) -> bool:
        """Whether a transform of its pipeline is given all these options."""
        pipeline = self.cfg.get('pipeline') or ()
        return any(all(step.get(key) == value for key, value in options.items()) for step in pipeline)

    def way_out(self) -> str:
        """How to get such data, and how to say where it is."""
        folder = MINI_FOLDER[self.kind]
        nested = os.path.join(self.root, folder)
        if os.path.isdir(nested):
            return f'Did you mean --cfg-options data_root={nested}?'
        above, name = os.path.split(self.root.rstrip('/'))
        if name == folder and os.path.basename(above).startswith('mini'):
            again = ' --overwrite' if os.path.isdir(above) else ''
            return (
                f'Make it with "mmlape make-mini-data {above}{again}"; is it elsewhere, pass '
                '--cfg-options data_root=DIR.'
            )
        return (
            f'{HOW_TO_GET[self.kind]}; is it elsewhere, pass --cfg-options data_root=DIR. To try things out, '
            f'run "mmlape make-mini-data data/mini" and pass --cfg-options data_root=data/mini/{folder}.'
        )


def iter_sources(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[DataSource]:
    """The data sets of the config's data loaders, wrappers such as RepeatDataset taken off.

    A data set of a class that is neither COCO's, nor MMSegmentation's, nor MMPretrain's folder layout is left out.
    """
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        if loader and loader.get('dataset'):
            for leaf in _unwrap(loader['dataset']):
                cls = _resolve(leaf.get('type'), cfg.get('default_scope'))
                names = [base.__name__ for base in cls.__mro__] if cls else []
                kind = next((KINDS[name] for name in names if name in KINDS), None)
                if kind:
                    yield _describe(split, leaf, kind, cls)


def iter_heads(cfg: Config) -> Iterator[tuple[str, dict]]:
    """(dotted name, dict) of every dict in the model, and of the data preprocessor, that has `num_classes`."""
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


def _unwrap(dataset: dict) -> Iterator[dict]:
    inner = dataset.get('datasets') or ([dataset['dataset']] if 'dataset' in dataset else None)
    if inner is None:
        yield dataset
    else:
        for part in inner:
            yield from _unwrap(part)


def _resolve(name: Any, default_scope: str | None) -> type | None:
    if inspect.isclass(name):
        return name
    scope, _, bare = str(name).rpartition('.')
    registry = import_module(f'{scope or default_scope or "mmengine"}.registry').DATASETS
    found = registry.get(bare)
    return found if inspect.isclass(found) else None


def _describe(split: str, cfg: dict, kind: str, cls: type) -> DataSource:
    root = os.path.expanduser(cfg.get('data_root') or '')
    prefix = cfg.get('data_prefix') or {}
    if not isinstance(prefix, dict):
        prefix = dict(img_path=prefix)
    images, ann_file = prefix.get('img') or prefix.get('img_path') or '', cfg.get('ann_file') or ''
    if kind == 'folder' and cfg.get('split'):  # ImageNet's own convention
        images = images or cfg['split']
        listed = f'meta/{cfg["split"]}.txt'
        ann_file = ann_file or (listed if os.path.isfile(os.path.join(root, listed)) else '')
    labels = prefix.get('seg_map_path') or ''
    given = (cfg.get('metainfo') or {}).get('classes')
    classes = given or getattr(cls, 'METAINFO', {}).get('classes')
    if isinstance(classes, str):  # MMEngine takes a path to a list too
        classes = read_lines(classes) if os.path.isfile(classes) else [classes]
    return DataSource(
        split=split,
        cfg=cfg,
        kind=kind,
        cls=cls,
        root=root,
        ann_file=os.path.join(root, ann_file) if ann_file else '',
        image_dir=os.path.join(root, images),
        label_dir=os.path.join(root, labels) if labels else '',
        classes=tuple(classes) if classes else None,
        explicit=bool(given),
    )


def read_lines(path: str) -> list[str]:
    """The lines of a text file that are not blank, stripped."""
    with open(path, encoding='utf-8') as file:
        return [line.strip() for line in file if line.strip()]


def subfolders(path: str) -> list[str]:
    """Sorted names of a directory's sub-folders: MMPretrain's classes, in label order."""
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())
