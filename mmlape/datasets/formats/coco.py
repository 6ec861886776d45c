"""COCO's format: a directory of images, and one JSON file of annotations."""

import functools
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mmlape.datasets.formats.base import (
    ERROR,
    WARNING,
    DataIssue,
    DataSource,
    ImageEntry,
    ImageFacts,
    shorten,
)
from mmlape.datasets.images import Annotated, require_annotated_size
from mmlape.errors import DataError
from mmlape.files import file_version, parse_json

HINT = 'Download or unpack it again.'
MARGIN = 1.0  # pixels that a box may extend beyond its image: annotators round
_ID, _NUMBER = (int, str), (int, float)
_FIELDS: dict[str, dict[str, Any]] = {
    'categories': dict(id=_ID, name=str),
    'images': dict(id=_ID, file_name=str, height=_NUMBER, width=_NUMBER),
    'annotations': {},
}
"""The fields that the entries of each list must have, and their types."""


def read_coco(path: str) -> dict[str, Any]:
    """Read an annotation file.

    COCO's train2017, 450 MB, takes 10 s and 2.5 GB of memory, which MMDetection takes again and in
    every process.

    Returns:
        Its content, with ``annotations`` in any case: a list of test images has none.

    Raises:
        DataError: It is empty, truncated, not JSON, or not of COCO's form.
    """
    with open(path, 'rb') as file:
        data = file.read()
    if not data.strip():
        raise DataError(f'Annotation file {path} is empty. {HINT}')
    try:
        content = parse_json(data)
    except ValueError as error:
        raise DataError(f'Annotation file {path} is not valid JSON ({error}). {HINT}') from error
    if not isinstance(content, dict):
        raise DataError(
            f'Annotation file {path} is not of COCO form: a {type(content).__name__}, not an '
            'object.'
        )
    content.setdefault('annotations', [])
    for key, fields in _FIELDS.items():
        if not isinstance(content.get(key), list):
            raise DataError(f'Annotation file {path} is not of COCO form: it has no list "{key}".')
        for entry in content[key]:
            defect = _find_defect(entry, fields)
            if defect is not None:
                raise DataError(
                    f'Annotation file {path} has an entry {defect} in "{key}": {str(entry)[:120]}'
                )
    counts = Counter(class_names(content))
    if duplicates := sorted(name for name, count in counts.items() if count > 1):
        raise DataError(
            f'Annotation file {path} has more than one category named {", ".join(duplicates[:6])}.'
        )
    return content


def class_names(coco: dict[str, Any]) -> tuple[str, ...]:
    """Return the category names in the order of the file, which is MMDetection's label order."""
    return tuple(category['name'] for category in coco['categories'])


@functools.lru_cache
def _listed_classes(path: str, version: tuple[int, int]) -> tuple[str, ...]:
    """Read the classes of a version of a file once: a study moves the data of each of its arms."""
    return class_names(read_coco(path))


def _find_defect(entry: Any, fields: dict[str, type | tuple[type, ...]]) -> str | None:
    """Say what an entry lacks: to be an object, one of these fields, the type of one, or ids that can be hashed."""
    if not isinstance(entry, dict):
        return 'that is not an object'
    for name, types in fields.items():
        if name not in entry:
            return f'without "{name}"'
        if not isinstance(entry[name], types):
            return f'with an invalid "{name}"'
    invalid = [
        name
        for name in ('id', 'image_id', 'category_id')
        if isinstance(entry.get(name), list | dict)
    ]
    return f'with an invalid "{invalid[0]}"' if invalid else None


class Defect(NamedTuple):
    """What is wrong with an annotation.

    The issue, with a predicate as its message, and whether it is still used.
    """

    severity: str
    topic: str
    description: str
    usable: bool = False


@dataclass(frozen=True)
class AnnotationRules:
    """What an annotation is checked against."""

    labels: Mapping[int, int]  # label of each category id
    images: Mapping[int, dict]  # record of each image id
    with_mask: bool  # whether the pipeline loads masks
    needs_mask: bool  # whether every annotation must have one

    def find_defect(self, annotation: dict) -> Defect | None:
        """Return the worst defect of an annotation; None without any."""
        category = annotation.get('category_id')
        if category not in self.labels:
            description = (
                f'has category_id {category}, but the categories have ids {shorten(self.labels)}'
            )
            return Defect(
                ERROR, 'unknown category', f'of image {annotation.get("image_id")} {description}'
            )
        missing = [key for key in ('bbox', 'area', 'image_id') if key not in annotation]
        if self.needs_mask and not annotation.get('segmentation'):
            missing.append('segmentation')
        if missing:
            return Defect(ERROR, 'incomplete annotation', f'has no {", ".join(missing)}')
        box = annotation['bbox']
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_finite, box))):
            return Defect(ERROR, 'invalid box', f'has the box {box}, not four finite numbers')
        if not isinstance(annotation['area'], int | float):
            return Defect(ERROR, 'invalid area', f'has the area {annotation["area"]}, not a number')
        if self.with_mask and not _is_mask(annotation.get('segmentation')):
            mask = str(annotation['segmentation'])[:60]
            return Defect(
                ERROR,
                'invalid mask',
                f'has a segmentation that is neither polygons nor a mask: {mask}',
            )
        record = self.images.get(annotation['image_id'])
        if record is None:
            description = f'is of image {annotation["image_id"]}, which is not listed'
            return Defect(WARNING, 'annotation of no image', description)
        return self._find_misfit(annotation, record['width'], record['height'])

    def _find_misfit(self, annotation: dict, width: int, height: int) -> Defect | None:
        """Return what does not fit an image of this size."""
        (x, y, w, h), area, mask = (
            annotation['bbox'],
            annotation['area'],
            annotation.get('segmentation'),
        )
        box = f'has the box {annotation["bbox"]} in an image of {width} x {height} pixels'
        if w > 0 and h > 0 and (x >= width or y >= height or x + w <= 0 or y + h <= 0):
            return Defect(ERROR, 'box outside its image', f'{box}, so completely outside')
        if self.with_mask and isinstance(mask, dict) and mask.get('size') != [height, width]:
            sizes = f'{mask.get("size")} in an image of {height} x {width}'
            return Defect(ERROR, 'mask of another size', f'has a mask of (height, width) {sizes}')
        if w < 1 or h < 1 or (_is_finite(area) and area <= 0):
            return Defect(
                WARNING, 'box without area', f'{box}, and the area {area}: it will not be used'
            )
        if self.with_mask and isinstance(mask, list) and not any(map(_is_polygon, mask)):
            return Defect(
                WARNING, 'mask without area', 'has no polygon of three points or more', usable=True
            )
        if min(x, y) < -MARGIN or x + w > width + MARGIN or y + h > height + MARGIN:
            return Defect(WARNING, 'box partly outside', f'{box}, so partly outside', usable=True)
        return None


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_mask(value: object) -> bool:
    """Return whether MMDetection can read it: polygons, an encoded mask, or nothing."""
    if isinstance(value, list):
        return all(isinstance(part, list) for part in value)
    return not value or isinstance(value, dict)


def _is_polygon(part: object) -> bool:
    return isinstance(part, list) and len(part) >= 6 and len(part) % 2 == 0


class CocoSource(DataSource):
    """COCO's format: a directory of images, and one JSON file of annotations."""

    instructions = (
        'COCO: unpack train2017.zip, val2017.zip and annotations_trainval2017.zip from '
        'https://cocodataset.org so that the data root holds train2017/, val2017/ and '
        'annotations/instances_{train,val}2017.json'
    )
    mini_folder = 'coco'
    pack_transform = 'PackDetInputs'
    layout_keys = ('ann_file', 'data_prefix.img')
    selects_classes = True

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the categories."""
        if not os.path.isfile(self.ann_file):
            return None
        return _listed_classes(self.ann_file, file_version(self.ann_file))

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check paths, categories, every annotation, and that the images are there."""
        self.require(self.root, 'Data root')
        self.require(self.ann_file, 'Annotation file', os.path.isfile)
        self.require(self.image_dir, 'Image directory')
        coco = read_coco(self.ann_file)
        if not coco['images']:
            raise DataError(f'Annotation file {self.ann_file} lists no images. {self.hint()}')
        self.summary.classes = class_names(coco)
        yield from self.match_classes(self.summary.classes, f'The categories of {self.ann_file}')
        self.summary.num_classes, self.summary.images = (
            len(self.summary.classes),
            len(coco['images']),
        )
        self.summary.sampled = False
        yield from self._check_annotations(coco)
        yield from self._find_duplicates(coco)
        yield from self._find_images(coco)

    def _find_images(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        folder, missing, self.entries = self.image_dir, [], []
        present = set(os.listdir(folder))
        for record in coco['images']:
            name = record['file_name']
            path = os.path.join(folder, name)
            if name in present or os.path.isfile(path):
                self.entries.append(ImageEntry(path, record))
            else:
                missing.append(name)
        if missing:
            message = (
                f'{len(missing)} of {len(coco["images"])} images of {self.ann_file} are not in '
                f'{folder}; the first is {missing[0]}. {self.hint()}'
            )
            yield DataIssue(ERROR, 'image missing', message, len(missing))

    def _check_annotations(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        images = {record['id']: record for record in coco['images']}
        labels = {category['id']: label for label, category in enumerate(coco['categories'])}
        with_mask, usable = self.has_transform(with_mask=True), set()
        rules = AnnotationRules(labels, images, with_mask, with_mask and self.split == 'train')
        if not coco['annotations'] and self.split == 'train':
            raise DataError(
                f'Annotation file {self.ann_file} has no annotations to train on. {self.hint()}'
            )
        for annotation in coco['annotations']:
            defect = rules.find_defect(annotation)
            if defect is not None:
                message = f'Annotation file {self.ann_file}: annotation {annotation.get("id")} {defect.description}.'
                yield DataIssue(defect.severity, defect.topic, message)
            label, crowd = (
                labels.get(annotation.get('category_id')),
                bool(annotation.get('iscrowd')),
            )
            self.summary.facts['crowds'] += crowd
            if label is not None:
                self.summary.labels[label] += 1
            if not crowd and (defect is None or defect.usable):
                usable.add(annotation['image_id'])
        self.summary.seen = set(self.summary.labels)
        empty = [record['file_name'] for record in coco['images'] if record['id'] not in usable]
        self.summary.facts.update(
            {'annotations': len(coco['annotations']), 'images without objects': len(empty)}
        )
        if empty:
            count = f'{len(empty)} of {len(images)} images'
            message = f'{count} of {self.ann_file} have no object to learn: {shorten(empty)}.'
            yield DataIssue(WARNING, 'image without objects', message, len(empty))

    def _find_duplicates(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        for what, records, severity, key in (
            ('image id', coco['images'], ERROR, 'id'),
            ('file name', coco['images'], WARNING, 'file_name'),
            ('annotation id', coco['annotations'], ERROR, 'id'),
        ):
            counts = Counter(record.get(key) for record in records)
            values = [value for value, count in counts.items() if count > 1]
            if values:
                message = f'Annotation file {self.ann_file} has the {what} {shorten(values)} more than once.'
                yield DataIssue(severity, f'duplicate {what}', message, len(values))

    def annotated(self, entry: ImageEntry) -> Annotated:
        """Return the size of an image's record."""
        return Annotated((entry.annotation['width'], entry.annotation['height']))

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Compare the size of an image with its record's."""
        try:
            require_annotated_size(entry.path, size, self.annotated(entry).size, self.ann_file)
        except DataError as error:
            facts.issues.append(DataIssue(ERROR, 'image of another size', str(error)))
