"""The look at data in COCO's layout."""

import math
import os
from collections import Counter
from collections.abc import Iterator

from mmlape.datasets.checks.base import ERROR, WARNING, FileFacts, Item, Look, Problem, shorten
from mmlape.datasets.checks.coco_annotations import AnnotationRules, Fault
from mmlape.datasets.coco_file import WHOLE_BYTES, CocoFile, read_coco
from mmlape.errors import DataError


class CocoLook(Look):
    """Categories, every annotation that was read, and the pictures beside their records."""

    def _structure(self) -> Iterator[Problem]:
        source = self.source
        self.require(source.root, 'Data root')
        self.require(source.ann_file, 'Annotation file', os.path.isfile)
        self.require(source.image_dir, 'Image directory')
        coco = read_coco(source.ann_file, math.inf if self.whole else WHOLE_BYTES)
        if not coco.images:
            raise DataError(f'Annotation file {coco.path} lists no images. {source.way_out()}')
        yield from self.match_classes(coco.class_names, f'The categories of {coco.path}')
        self.summary.num_classes, self.summary.classes = len(coco.categories), coco.class_names
        self.summary.sampled = coco.annotations is None
        if coco.annotations is not None:
            self.summary.images = len(coco.images)
            yield from self._annotations(coco)
        yield from self._first_annotations(coco)
        yield from self._twice(coco)
        present = set(os.listdir(source.image_dir))
        kept, missing = [], []
        for record in coco.images:
            name = record['file_name']
            path = os.path.join(source.image_dir, name)
            if name in present or os.path.isfile(path):
                kept.append(Item(path, record))
            else:
                missing.append(name)
        self.items = kept
        if missing:
            yield Problem(
                ERROR,
                'image missing',
                f'{len(missing)} of {len(coco.images)} images of {coco.path} are not in {source.image_dir}; the first '
                f'is {missing[0]}. {source.way_out()}',
                len(missing),
            )

    def _rules(self, coco: CocoFile, images: dict | None) -> AnnotationRules:
        labels = {category['id']: label for label, category in enumerate(coco.categories)}
        with_mask = self.source.has_transform(with_mask=True)
        return AnnotationRules(labels, images, with_mask, with_mask and self.source.split == 'train')

    def _problem(self, entry: dict, fault: Fault) -> Problem:
        text = f'Annotation file {self.source.ann_file}: annotation {entry.get("id")} {fault.words}.'
        return Problem(fault.severity, fault.kind, text)

    def _annotations(self, coco: CocoFile) -> Iterator[Problem]:
        images = {record['id']: record for record in coco.images}
        rules, usable = self._rules(coco, images), set()
        if not coco.annotations and self.source.split == 'train':
            raise DataError(f'Annotation file {coco.path} has no annotations to train on. {self.source.way_out()}')
        for entry in coco.annotations:
            fault = rules.fault(entry)
            if fault is not None:
                yield self._problem(entry, fault)
            label, crowd = rules.labels.get(entry.get('category_id')), bool(entry.get('iscrowd'))
            self.summary.facts['crowds'] += crowd
            if label is not None:
                self.summary.labels[label] += 1
            if not crowd and (fault is None or fault.usable):
                usable.add(entry['image_id'])
        self.summary.seen = set(self.summary.labels)
        empty = [record['file_name'] for record in coco.images if record['id'] not in usable]
        self.summary.facts.update({'annotations': len(coco.annotations), 'images without objects': len(empty)})
        if empty:
            text = f'{len(empty)} of {len(images)} images of {coco.path} have no object to learn: {shorten(empty)}.'
            yield Problem(WARNING, 'image without objects', text, len(empty))

    def _first_annotations(self, coco: CocoFile) -> Iterator[Problem]:
        """Those of a big file that were read, of images that mostly were not."""
        rules = self._rules(coco, None)
        for entry in coco.first_annotations:
            fault = rules.fault(entry)
            if fault is not None:
                yield self._problem(entry, fault)
            else:
                self.summary.seen.add(rules.labels[entry['category_id']])

    def _twice(self, coco: CocoFile) -> Iterator[Problem]:
        for what, entries, severity, key in (
            ('image id', coco.images, ERROR, 'id'),
            ('file name', coco.images, WARNING, 'file_name'),
            ('annotation id', coco.annotations or (), ERROR, 'id'),
        ):
            counts = Counter(entry.get(key) for entry in entries)
            twice = [value for value, count in counts.items() if count > 1]
            if twice:
                text = f'Annotation file {coco.path}: the {what} {shorten(twice)} stands more than once.'
                yield Problem(severity, f'{what} twice', text, len(twice))

    def _look(self, item: Item, size: tuple[int, int], facts: FileFacts) -> None:
        record = item.about
        if sorted(size) != sorted((record['width'], record['height'])):  # a camera's rotation mark swaps them
            stored = f'{record["width"]} x {record["height"]}'
            text = f'Image {item.path} is {size[0]} x {size[1]} pixels, but {self.source.ann_file} says {stored}.'
            facts.problems.append(Problem(ERROR, 'image of another size', text))
