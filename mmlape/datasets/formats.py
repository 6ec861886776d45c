"""The dataset formats that can be checked and re-rooted: COCO's, ADE20K's, ImageNet's, Sun397's, CIFAR's and others.

A format of your own is a subclass of `DataSource` in `FORMATS` and a check in `mmlape.datasets.checks.config.CHECKS`.
"""

import os
from collections.abc import Iterator, Sequence

from mmengine import Config

from mmlape.datasets.coco_file import read_coco
from mmlape.datasets.fashion_mnist import HINT as FASHION_MNIST_HINT
from mmlape.datasets.fashion_mnist import idx_files
from mmlape.datasets.sources import SPLITS, DataSource, iter_unwrapped, read_lines, resolve_class


class CocoSource(DataSource):
    """COCO's format: a directory of images, and one JSON file of annotations."""

    instructions = (
        'COCO: unpack train2017.zip, val2017.zip and annotations_trainval2017.zip from https://cocodataset.org '
        'so that the data root holds train2017/, val2017/ and annotations/instances_{train,val}2017.json'
    )
    mini_folder = 'coco'
    pack_transform = 'PackDetInputs'
    selects_classes = True

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the categories in the order of the file, which is MMDetection's label order."""
        return read_coco(self.ann_file).class_names if os.path.isfile(self.ann_file) else None


class SegmentationSource(DataSource):
    """ADE20K's format: images, and label maps of the same names; `classes.txt` may list the classes."""

    instructions = (
        'ADE20K: unpack http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip so that the data root '
        'holds images/{training,validation}/*.jpg and annotations/{training,validation}/*.png'
    )
    mini_folder = 'ade'
    pack_transform = 'PackSegInputs'
    classes_optional = True

    @property
    def class_list(self) -> str:
        """The path where a list of the classes may be."""
        return os.path.join(self.root, 'classes.txt')

    def read_classes(self) -> tuple[str, ...] | None:
        """Read `classes.txt` of the data root."""
        return tuple(read_lines(self.class_list)) if os.path.isfile(self.class_list) else None

    def set_classes(self, classes: tuple[str, ...]) -> None:
        """Write class names; a dataset class with names of its own, which takes no others, becomes BaseSegDataset."""
        if self.class_metainfo:
            kept = {name: self.option(name) for name in ('img_suffix', 'seg_map_suffix', 'reduce_zero_label')}
            scope = str(self.cfg['type']).rpartition('.')[0]
            self.cfg.update(kept, type=f'{scope}.BaseSegDataset' if scope else 'BaseSegDataset')
        super().set_classes(classes)

    def guarded_transforms(self) -> dict[str, dict]:
        """Check label ids while loading."""
        guard = dict(type='mmlape.LoadSegAnnotations', num_classes=len(self.classes or ()) or 255)
        return {'LoadAnnotations': guard, 'mmseg.LoadAnnotations': guard}


class FolderSource(DataSource):
    """ImageNet's format: one folder of images for each class, or a list of images and labels."""

    instructions = 'ImageNet: one sub-folder of images for each class, below train/ and val/ of the data root'
    mini_folder = 'digits'
    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        super().__init__(split, cfg, dataset_class)
        name = cfg.get('split')  # of MMPretrain's ImageNet: a folder, and a list in meta/ if there is one
        if name:
            listed = os.path.join(self.root, 'meta', f'{name}.txt')
            self.ann_file = self.ann_file or (listed if os.path.isfile(listed) else '')
            if self.image_dir == os.path.join(self.root, ''):
                self.image_dir = os.path.join(self.root, name)

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the names of the folders; the class's own names stay, as ImageNet's folders are codes."""
        if self.ann_file or not os.path.isdir(self.image_dir):
            return None
        names = tuple(self.class_folders())
        keeps = self.classes and not self.explicit and len(self.classes) == len(names)
        return self.classes if keeps else names

    def class_folders(self) -> list[str]:
        """Return the sorted names of the folders, one for each class, in label order."""
        with os.scandir(self.image_dir) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())


class SunSource(DataSource):
    """Sun397's: images in folders of their classes below one for each letter, and lists of ten partitions."""

    instructions = (
        'Sun397: unpack SUN397.tar.gz and Partitions.zip of https://vision.princeton.edu/projects/2010/SUN so that '
        'the data root holds SUN397/ (a/abbey/*.jpg, ...) and Partitions/Training_01.txt, Testing_01.txt'
    )
    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        super().__init__(split, cfg, dataset_class)
        part = 'Training' if self.option('split') == 'train' else 'Testing'
        self.ann_file = os.path.join(self.root, 'Partitions', f'{part}_01.txt')
        self.image_dir = os.path.join(self.root, 'SUN397')


class CifarSource(DataSource):
    """CIFAR's files of many images each, as they are published for Python."""

    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        super().__init__(split, cfg, dataset_class)
        self.image_dir = os.path.join(self.root, dataset_class.base_folder)
        self.instructions = (
            f'{dataset_class.__name__}: unpack {dataset_class.url} there, so that {self.root.rstrip("/")} holds '
            f'{dataset_class.base_folder}/'
        )

    @property
    def files(self) -> dict[str, str]:
        """The MD5 sum of each file, by its path; MMPretrain wants those of both splits."""
        cls = self.dataset_class
        listed = [*cls.train_list, *cls.test_list, (cls.meta['filename'], cls.meta['md5'])]
        return {os.path.join(self.image_dir, name): md5 for name, md5 in listed}


class FashionMNISTSource(DataSource):
    """Fashion-MNIST's gzipped IDX files."""

    instructions = FASHION_MNIST_HINT
    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        super().__init__(split, cfg, dataset_class)
        self.files = idx_files(self.root, self.option('split'))


FORMATS: dict[str, type[DataSource]] = {
    'CocoDataset': CocoSource,
    'BaseSegDataset': SegmentationSource,
    'CustomDataset': FolderSource,
    'SUN397': SunSource,
    'CIFAR10': CifarSource,
    'GzippedFashionMNIST': FashionMNISTSource,
}
"""The format of the dataset classes of these names and of their subclasses."""


def iter_sources(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[DataSource]:
    """Yield the datasets of known format of a config's data loaders, without wrappers such as RepeatDataset."""
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        for dataset in iter_unwrapped(loader['dataset']) if loader and loader.get('dataset') else ():
            cls = resolve_class(dataset.get('type'), cfg.get('default_scope'), 'DATASETS')
            names = [base.__name__ for base in cls.__mro__] if cls else []
            source_class = next((FORMATS[name] for name in names if name in FORMATS), None)
            if source_class:
                yield source_class(split, dataset, cls)
