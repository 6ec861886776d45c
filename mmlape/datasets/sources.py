"""What a dataset's config reads from where: the base class of the formats in `mmlape.datasets.formats`."""

import inspect
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from mmlape.datasets.palette import class_palette

SPLITS = ('train', 'val', 'test')


class DataSource:
    """One dataset of a config, with its paths resolved. A subclass describes a format.

    A format overrides the class attributes and, where its files differ, `read_classes`, `set_classes` and
    `guarded_transforms`.

    Args:
        split: 'train', 'val' or 'test'.
        cfg: The dataset's own part of the config, to be read or changed.
        dataset_class: The class that ``cfg`` builds.

    Attributes:
        root: Data root; may be ''.
        ann_file: Annotation file or list; '' where it has none.
        image_dir: Directory of the images.
        label_dir: Directory of the label maps; '' where it has none.
        classes: Class names in label order; None where only the data has them.
        explicit: Whether the config, not the class, names the classes.
    """

    instructions = 'Put the data where the config expects it'
    """How to obtain data of this format."""
    mini_folder = ''
    """The folder of the mini data that has this format; '' for none."""
    pack_transform = ''
    """The transform that packs a sample of this format."""
    classes_optional = False
    """Whether data of this format may lack a list of its classes."""
    selects_classes = False
    """Whether the dataset class skips the annotations of classes that the config does not name."""

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        self.split, self.cfg, self.dataset_class = split, cfg, dataset_class
        self.root = os.path.expanduser(cfg.get('data_root') or '')
        prefix = cfg.get('data_prefix') or {}
        if not isinstance(prefix, dict):
            prefix = dict(img_path=prefix)
        labels = prefix.get('seg_map_path')
        self.image_dir = os.path.join(self.root, prefix.get('img') or prefix.get('img_path') or '')
        self.label_dir = os.path.join(self.root, labels) if labels else ''
        self.ann_file = os.path.join(self.root, cfg['ann_file']) if cfg.get('ann_file') else ''
        given = (cfg.get('metainfo') or {}).get('classes')
        classes = given or self.class_metainfo
        if isinstance(classes, str):  # MMEngine takes a path to a list too
            classes = read_lines(classes) if os.path.isfile(classes) else [classes]
        self.classes = tuple(classes) if classes else None
        self.explicit = bool(given)

    @property
    def class_metainfo(self) -> tuple[str, ...]:
        """The class names that the dataset class defines; () for none."""
        return tuple(getattr(self.dataset_class, 'METAINFO', {}).get('classes') or ())

    @property
    def is_local(self) -> bool:
        """Whether its paths are on this machine's file system."""
        return not any('://' in path for path in (self.root, self.ann_file, self.image_dir))

    def option(self, name: str) -> Any:
        """Return an argument's value: the config's, or the default of the nearest class that has one."""
        return self.cfg[name] if name in self.cfg else default_argument(self.dataset_class, name)

    def has_transform(self, **options: Any) -> bool:
        """Return whether a transform of its pipeline is given all these options."""
        pipeline = self.cfg.get('pipeline') or ()
        return any(all(step.get(key) == value for key, value in options.items()) for step in pipeline)

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the class names from the data; None where it is missing or lists none."""
        return None

    def set_classes(self, classes: tuple[str, ...]) -> None:
        """Write class names and colours into ``cfg``."""
        palette = class_palette(len(classes))
        self.cfg['metainfo'] = {**(self.cfg.get('metainfo') or {}), 'classes': classes, 'palette': palette}

    def guarded_transforms(self) -> dict[str, dict]:
        """Return the options that replace transforms of these names by ones whose errors name the file."""
        return {}

    def hint(self) -> str:
        """Explain how to get such data, and how to point a config at it."""
        folder = self.mini_folder
        if folder and os.path.isdir(nested := os.path.join(self.root, folder)):
            return f'Did you mean --cfg-options data_root={nested}?'
        parent, name = os.path.split(self.root.rstrip('/'))
        elsewhere = 'if it is elsewhere, pass --cfg-options data_root=DIR.'
        if name == folder and os.path.basename(parent).startswith('mini'):
            overwrite = ' --overwrite' if os.path.isdir(parent) else ''
            return f'Generate it with "mmlape make-mini-data {parent}{overwrite}"; {elsewhere}'
        mini = (
            ' For a first try, run "mmlape make-mini-data data/mini" and pass '
            f'--cfg-options data_root=data/mini/{folder}.'
        )
        return f'{self.instructions}; {elsewhere}' + mini * bool(folder)


def resolve_class(name: Any, default_scope: str | None, registry: str) -> type | None:
    """Find the class that a ``type`` of a config names; None if there is none.

    Args:
        name: A class, or its name with or without a scope.
        default_scope: Scope of a name without one.
        registry: Name of the registry, such as 'DATASETS'.
    """
    if inspect.isclass(name):
        return name
    scope, _, bare = str(name).rpartition('.')
    found = getattr(import_module(f'{scope or default_scope or "mmengine"}.registry'), registry).get(bare)
    return found if inspect.isclass(found) else None


def default_argument(cls: type, name: str) -> Any:
    """Return the default of a constructor's argument, of the nearest base class that has one; None without any."""
    for base in cls.__mro__:
        parameter = inspect.signature(base.__init__).parameters.get(name)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None


def read_lines(path: str) -> list[str]:
    """Return the lines of a text file that are not blank, stripped."""
    with open(path, encoding='utf-8') as file:
        return [line.strip() for line in file if line.strip()]


def iter_unwrapped(dataset: dict) -> Iterator[dict]:
    """Yield the configs of the datasets inside wrappers such as RepeatDataset and ConcatDataset."""
    inner = dataset.get('datasets') or ([dataset['dataset']] if 'dataset' in dataset else None)
    if inner is None:
        yield dataset
    else:
        for part in inner:
            yield from iter_unwrapped(part)
