"""COCO's format: a directory of images, and one JSON file of annotations."""

import math
import os
from collections import Counter
from collections.abc import Iterator

from mmlape.datasets.coco_file import FULL_READ_BYTES, CocoFile, read_coco
from mmlape.datasets.formats.base import DataSource, ImageEntry, ImageFacts, shorten
from mmlape.datasets.formats.coco_annotations import AnnotationRules, Defect
from mmlape.datasets.issues import ERROR, WARNING, DataIssue
from mmlape.errors import DataError


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

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check paths, categories, every annotation that is read, and that the images are there."""
        self.require(self.root, 'Data root')
        self.require(self.ann_file, 'Annotation file', os.path.isfile)
        self.require(self.image_dir, 'Image directory')
        coco = read_coco(self.ann_file, math.inf if complete else FULL_READ_BYTES)
        if not coco.images:
            raise DataError(f'Annotation file {coco.path} lists no images. {self.hint()}')
        yield from self.match_classes(coco.class_names, f'The categories of {coco.path}')
        self.summary.num_classes, self.summary.classes = len(coco.categories), coco.class_names
        self.summary.sampled = coco.annotations is None
        if coco.annotations is not None:
            self.summary.images = len(coco.images)
            yield from self._check_annotations(coco)
        yield from self._check_first_annotations(coco)
        yield from self._find_duplicates(coco)
        yield from self._find_images(coco)

    def _find_images(self, coco: CocoFile) -> Iterator[DataIssue]:
        folder, missing, self.entries = self.image_dir, [], []
        present = set(os.listdir(folder))
        for record in coco.images:
            name = record['file_name']
            path = os.path.join(folder, name)
            if name in present or os.path.isfile(path):
                self.entries.append(ImageEntry(path, record))
            else:
                missing.append(name)
        if missing:
            message = (
                f'{len(missing)} of {len(coco.images)} images of {coco.path} are not in {folder}; the first '
                f'is {missing[0]}. {self.hint()}'
            )
            yield DataIssue(ERROR, 'image missing', message, len(missing))

    def _rules(self, coco: CocoFile, images: dict | None) -> AnnotationRules:
        labels = {category['id']: label for label, category in enumerate(coco.categories)}
        with_mask = self.has_transform(with_mask=True)
        return AnnotationRules(labels, images, with_mask, with_mask and self.split == 'train')

    def _issue(self, annotation: dict, defect: Defect) -> DataIssue:
        message = f'Annotation file {self.ann_file}: annotation {annotation.get("id")} {defect.description}.'
        return DataIssue(defect.severity, defect.kind, message)

    def _check_annotations(self, coco: CocoFile) -> Iterator[DataIssue]:
        images = {record['id']: record for record in coco.images}
        rules, usable = self._rules(coco, images), set()
        if not coco.annotations and self.split == 'train':
            raise DataError(f'Annotation file {coco.path} has no annotations to train on. {self.hint()}')
        for annotation in coco.annotations:
            defect = rules.find_defect(annotation)
            if defect is not None:
                yield self._issue(annotation, defect)
            label, crowd = rules.labels.get(annotation.get('category_id')), bool(annotation.get('iscrowd'))
            self.summary.facts['crowds'] += crowd
            if label is not None:
                self.summary.labels[label] += 1
            if not crowd and (defect is None or defect.usable):
                usable.add(annotation['image_id'])
        self.summary.seen = set(self.summary.labels)
        empty = [record['file_name'] for record in coco.images if record['id'] not in usable]
        self.summary.facts.update({'annotations': len(coco.annotations), 'images without objects': len(empty)})
        if empty:
            message = f'{len(empty)} of {len(images)} images of {coco.path} have no object to learn: {shorten(empty)}.'
            yield DataIssue(WARNING, 'image without objects', message, len(empty))

    def _check_first_annotations(self, coco: CocoFile) -> Iterator[DataIssue]:
        """Check the sample of a big file, without the records of the images, most of which were not read."""
        rules = self._rules(coco, None)
        for annotation in coco.first_annotations:
            defect = rules.find_defect(annotation)
            if defect is not None:
                yield self._issue(annotation, defect)
            else:
                self.summary.seen.add(rules.labels[annotation['category_id']])

    def _find_duplicates(self, coco: CocoFile) -> Iterator[DataIssue]:
        for what, records, severity, key in (
            ('image id', coco.images, ERROR, 'id'),
            ('file name', coco.images, WARNING, 'file_name'),
            ('annotation id', coco.annotations or (), ERROR, 'id'),
        ):
            counts = Counter(record.get(key) for record in records)
            values = [value for value, count in counts.items() if count > 1]
            if values:
                message = f'Annotation file {coco.path} has the {what} {shorten(values)} more than once.'
                yield DataIssue(severity, f'duplicate {what}', message, len(values))

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Compare the size of an image with its record's."""
        record = entry.annotation
        if sorted(size) != sorted((record['width'], record['height'])):  # a camera's rotation tag swaps them
            stored = f'{record["width"]} x {record["height"]}'
            message = f'Image {entry.path} is {size[0]} x {size[1]} pixels, but {self.ann_file} has {stored}.'
            facts.issues.append(DataIssue(ERROR, 'image of another size', message))
