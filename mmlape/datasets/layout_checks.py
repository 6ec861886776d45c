"""The looks at one data set: COCO's, ADE20K's and ImageNet's layouts, and class names in all of them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from mmengine.logging import print_log

from mmlape.datasets.coco_file import CocoFile, read_coco
from mmlape.datasets.image_files import open_image, require_size
from mmlape.datasets.layouts import DataSource, read_lines, subfolders
from mmlape.datasets.transforms import strange_labels
from mmlape.errors import DataError

SAMPLE = 32  # pictures that are opened
NAMES_SHOWN = 8


@dataclass
class DataSummary:
    """What a check saw: `seen` are the classes met in all annotations, or in the sample where `sampled` is set."""

    split: str
    path: str
    images: int | None
    num_classes: int
    seen: set[int] = field(default_factory=set)
    sampled: bool = True

    def __str__(self) -> str:
        images = '' if self.images is None else f'{self.images} images, '
        where = ' in the sample' if self.sampled else ''
        return f'{self.split} data {self.path}: {images}{len(self.seen)} of {self.num_classes} classes seen{where}'


def _check_coco(source: DataSource, smallest: int) -> DataSummary:
    _require(source, source.root, 'Data root')
    _require(source, source.ann_file, 'Annotation file', os.path.isfile)
    _require(source, source.image_dir, 'Image directory')
    coco = read_coco(source.ann_file)
    if not coco.images:
        raise DataError(f'Annotation file {coco.path} lists no images. {source.way_out()}')
    _match_classes(source, coco.class_names, f'The categories of {coco.path}')
    seen = _check_annotations(source, coco)
    present = set(os.listdir(source.image_dir))
    names = [record['file_name'] for record in coco.images]
    missing = [name for name in names if name not in present and not os.path.isfile(f'{source.image_dir}/{name}')]
    if missing:
        raise DataError(
            f'{len(missing)} of {len(names)} images of {coco.path} are not in {source.image_dir}; the first is '
            f'{missing[0]}. {source.way_out()}'
        )
    for record in _sample(coco.images):
        path = os.path.join(source.image_dir, record['file_name'])
        image = open_image(path)
        require_size(path, *image.size, smallest)
        if sorted(image.size) != sorted((record['width'], record['height'])):
            size = f'{record["width"]} x {record["height"]}'
            raise DataError(f'Image {path} is {image.width} x {image.height} pixels, but {coco.path} says {size}.')
    whole = coco.annotations is not None
    return DataSummary(
        source.split, coco.path, len(coco.images) if whole else None, len(coco.categories), seen, not whole
    )


def _check_annotations(source: DataSource, coco: CocoFile) -> set[int]:
    """Category ids, and masks where the pipeline wants them; the labels that occur."""
    labels = {category['id']: label for label, category in enumerate(coco.categories)}
    seen, with_mask = set(), source.has_transform(with_mask=True)
    if coco.annotations is not None and not coco.annotations and source.split == 'train':
        raise DataError(f'Annotation file {coco.path} has no annotations to train on. {source.way_out()}')
    for entry in coco.annotations or ():
        if entry.get('category_id') not in labels:
            raise DataError(
                f'Annotation file {coco.path}: annotation {entry.get("id")} of image {entry.get("image_id")} has '
                f'category_id {entry.get("category_id")}, but the categories have ids {_shorten(labels)}.'
            )
        missing = [key for key in ('bbox', 'area', 'image_id') if key not in entry]
        if with_mask and source.split == 'train' and not entry.get('segmentation'):
            missing.append('segmentation')
        if missing:
            raise DataError(f'Annotation file {coco.path}: annotation {entry.get("id")} has no {", ".join(missing)}.')
        seen.add(labels[entry['category_id']])
    return seen


def _check_segmentation(source: DataSource, smallest: int) -> DataSummary:
    _require(source, source.root, 'Data root')
    _require(source, source.image_dir, 'Image directory')
    if source.label_dir:
        _require(source, source.label_dir, 'Label map directory')
    known = tuple(getattr(source.cls, 'METAINFO', {}).get('classes') or ())
    if known and not set(source.classes) <= set(known):
        strange = _shorten([name for name in source.classes if name not in known])
        raise DataError(
            f'The config gives {source.cls.__name__} the classes {strange}, which it does not know: '
            "use type='BaseSegDataset' with reduce_zero_label=True."
        )
    listed = os.path.join(source.root, 'classes.txt')
    if os.path.isfile(listed):
        _match_classes(source, read_lines(listed), listed)
    if not source.classes:
        raise DataError(f'The config names no classes for {source.image_dir}: set metainfo=dict(classes=...).')
    stems = _stems(source)
    if not stems:
        raise DataError(f'{source.image_dir} has no {source.option("img_suffix")} images. {source.way_out()}')
    seen = _check_label_maps(source, stems, len(known or source.classes), smallest)
    return DataSummary(source.split, source.image_dir, len(stems), len(source.classes), seen)


def _check_label_maps(source: DataSource, stems: list[str], num_ids: int, smallest: int) -> set[int]:
    """All label maps exist; a sample is read with its images. `num_ids` is the count of ids before any label map."""
    image_suffix, label_suffix = source.option('img_suffix'), source.option('seg_map_suffix')
    if source.label_dir:
        present = set(_files(source.label_dir, label_suffix))
        missing = [stem for stem in stems if stem not in present]
        if missing:
            raise DataError(
                f'{len(missing)} of {len(stems)} images in {source.image_dir} have no label map in '
                f'{source.label_dir}; the first is {missing[0]}{label_suffix}. {source.way_out()}'
            )
    seen, first = set(), int(bool(source.option('reduce_zero_label')))
    for stem in _sample(stems):
        path = os.path.join(source.image_dir, stem + image_suffix)
        image = open_image(path)
        require_size(path, *image.size, smallest)
        if not source.label_dir:
            continue
        path = os.path.join(source.label_dir, stem + label_suffix)
        labels = np.asarray(open_image(path))
        if labels.ndim != 2:
            raise DataError(f'Label map {path} has {labels.shape[-1]} channels; it must have one, of label ids.')
        if labels.shape[::-1] != image.size:
            raise DataError(
                f'Label map {path} is {labels.shape[1]} x {labels.shape[0]} pixels, its image {image.size}.'
            )
        ids = set(np.unique(labels).tolist()) - {255, source.option('ignore_index')} - ({0} if first else set())
        strange = sorted(label for label in ids if not first <= label < first + num_ids)
        if strange:
            raise DataError(strange_labels(path, strange, num_ids, bool(first)))
        seen |= ids
    return seen


def _check_folder(source: DataSource, smallest: int) -> DataSummary:
    _require(source, source.root or source.image_dir, 'Data root')
    _require(source, source.image_dir, 'Image directory')
    extensions = tuple(source.option('extensions') or ())
    if source.ann_file:
        _require(source, source.ann_file, 'Annotation file', os.path.isfile)
        images, num_classes = _listed_images(source)
        total = len(images)
    elif source.option('with_label') is False:
        images, num_classes, total = sorted(_files(source.image_dir, extensions, keep_suffix=True)), 0, None
    else:
        names = subfolders(source.image_dir)
        if not names:
            raise DataError(f'{source.image_dir} has no sub-folders, one for each class. {source.way_out()}')
        if source.explicit or len(names) != len(source.classes or names):
            _match_classes(source, names, f'The sub-folders of {source.image_dir}')
        images, num_classes, total = [], len(names), None
        for name in names:
            folder = os.path.join(source.image_dir, name)
            first = next(_files(folder, extensions, keep_suffix=True), None)
            if first is None:
                raise DataError(f'{folder} has no images, so this class cannot be learnt. {source.way_out()}')
            images.append(os.path.join(name, first))
    if not images:
        raise DataError(f'{source.image_dir} has no images. {source.way_out()}')
    for name in _sample(images):
        path = os.path.join(source.image_dir, name)
        require_size(path, *open_image(path).size, smallest)
    return DataSummary(source.split, source.image_dir, total, num_classes, set(range(num_classes)), False)


def _listed_images(source: DataSource) -> tuple[list[str], int]:
    """The images of a list with lines 'path label', and the number of classes; every label is checked."""
    images, num_classes = [], len(source.classes or ())
    for number, line in enumerate(read_lines(source.ann_file), 1):
        name, _, label = line.rpartition(' ')
        if not name or not label.isdigit():
            raise DataError(f'{source.ann_file}, line {number}: "{line[:80]}" is not of the form "path label".')
        if source.classes and int(label) >= num_classes:
            raise DataError(
                f'{source.ann_file}, line {number}: label {label} is outside the {num_classes} classes, '
                f'0 to {num_classes - 1} are allowed.'
            )
        images.append(name)
    return images, num_classes


def _match_classes(source: DataSource, found: Sequence[str], where: str) -> None:
    """Refuses class names of the data that differ from the config's, unless the config picks a few of them."""
    if source.classes is None or tuple(found) == source.classes:
        return
    extra = [name for name in found if name not in source.classes]
    missing = [name for name in source.classes if name not in found]
    picked = source.kind == 'coco' and source.explicit and not missing
    if picked and [name for name in found if name in source.classes] == list(source.classes):
        print_log(f'{where}: not in the config, so not used: {_shorten(extra)}', logger='current')
        return
    if extra or missing:
        parts = [f'only in the data: {_shorten(extra)}'] * bool(extra)
        parts += [f'only in the config: {_shorten(missing)}'] * bool(missing)
        difference = '; '.join(parts)
    else:
        difference = f'same names in another order: data {_shorten(found)}, config {_shorten(source.classes)}'
    root = source.root.rstrip('/') or source.image_dir
    raise DataError(
        f'{where} do not match the classes of the config ({difference}). Pass --cfg-options data_root={root} to take '
        f'classes and num_classes from the data, or set metainfo=dict(classes=...) of the {source.split} data set.'
    )


def _require(source: DataSource, path: str, what: str, exists=os.path.isdir) -> None:
    if path and not exists(path):
        raise DataError(f'{what} {path} of the {source.split} data does not exist. {source.way_out()}')


def _stems(source: DataSource) -> list[str]:
    """Image names, without suffix, relative to the image directory; from the list if there is one."""
    if source.ann_file:
        _require(source, source.ann_file, 'List of images', os.path.isfile)
        return read_lines(source.ann_file)
    return sorted(_files(source.image_dir, source.option('img_suffix')))


def _files(root: str, suffix: str | tuple[str, ...], keep_suffix: bool = False) -> Iterator[str]:
    """Paths below `root`, relative to it, of the files with this ending; in no order."""
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            if name.endswith(suffix) or (keep_suffix and name.lower().endswith(suffix)):
                path = os.path.relpath(os.path.join(folder, name), root)
                yield path if keep_suffix else path[: -len(suffix)]


def _sample(items: Sequence) -> list:
    """Up to SAMPLE items, evenly spread from the first to the last."""
    picks = np.unique(np.linspace(0, len(items) - 1, min(SAMPLE, len(items))).round().astype(int))
    return [items[pick] for pick in picks]


def _shorten(names: Sequence) -> str:
    names = [str(name) for name in names]
    more = len(names) - NAMES_SHOWN
    return ', '.join(names[:NAMES_SHOWN]) + (f' and {more} more' if more > 0 else '')


CHECKS = {'coco': _check_coco, 'segmentation': _check_segmentation, 'folder': _check_folder}
