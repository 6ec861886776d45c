"""The look at data in COCO's layout."""

import math
import os
from collections import Counter
from collections.abc import Iterator

from mmlape.datasets.coco_file import WHOLE_BYTES, CocoFile, read_coco
from mmlape.datasets.look import ERROR, WARNING, FileFacts, Item, Look, Problem, shorten
from mmlape.errors import DataError

MARGIN = 1.0  # pixels that a box may stand out of its image: annotators round


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

    def _annotations(self, coco: CocoFile) -> Iterator[Problem]:
        labels = {category['id']: label for label, category in enumerate(coco.categories)}
        images = {record['id']: record for record in coco.images}
        usable: Counter = Counter()
        if not coco.annotations and self.source.split == 'train':
            raise DataError(f'Annotation file {coco.path} has no annotations to train on. {self.source.way_out()}')
        for entry in coco.annotations:
            if entry.get('category_id') not in labels:
                yield Problem(
                    ERROR,
                    'unknown category',
                    f'Annotation file {coco.path}: annotation {entry.get("id")} of image {entry.get("image_id")} has '
                    f'category_id {entry.get("category_id")}, but the categories have ids {shorten(labels)}.',
                )
                continue
            problem = self._incomplete(entry)
            where = f'Annotation file {coco.path}: annotation {entry.get("id")}'
            record = images.get(entry.get('image_id'))
            if problem is None and record is None:
                text = f'{where} is of image {entry["image_id"]}, which the file does not list.'
                problem = Problem(WARNING, 'annotation of no image', text)
            if problem is None:
                problem = self._strange(entry, record, where)
            if problem is not None:
                yield problem
            self.summary.facts['annotations'] += 1
            self.summary.facts['crowds'] += bool(entry.get('iscrowd'))
            self.summary.labels[labels[entry['category_id']]] += 1
            if problem is None or problem.kind in USABLE:
                usable[entry['image_id']] += not entry.get('iscrowd')
        self.summary.seen = set(self.summary.labels)
        empty = [record['file_name'] for record in coco.images if not usable[record['id']]]
        self.summary.facts['images without objects'] = len(empty)
        if empty:
            text = f'{len(empty)} of {len(images)} images of {coco.path} have no object to learn: {shorten(empty)}.'
            yield Problem(WARNING, 'image without objects', text, len(empty))

    def _incomplete(self, entry: dict) -> Problem | None:
        missing = [key for key in ('bbox', 'area', 'image_id') if key not in entry]
        if self._with_mask() and self.source.split == 'train' and not entry.get('segmentation'):
            missing.append('segmentation')
        if not missing:
            return None
        text = f'Annotation file {self.source.ann_file}: annotation {entry.get("id")} has no {", ".join(missing)}.'
        return Problem(ERROR, 'incomplete annotation', text)

    def _with_mask(self) -> bool:
        return self.source.has_transform(with_mask=True)

    def _strange(self, entry: dict, record: dict, where: str) -> Problem | None:
        """What is wrong with an annotation's box or mask, the worst first."""
        box, width, height = entry['bbox'], record['width'], record['height']
        if not (isinstance(box, list) and len(box) == 4 and all(_is_finite(value) for value in box)):
            return Problem(ERROR, 'broken box', f'{where} has the box {box}, not four finite numbers.')
        x, y, w, h = box
        beside = f'has the box {box} in an image of {width} x {height} pixels'
        outside = x >= width or y >= height or x + w <= 0 or y + h <= 0
        if outside and w > 0 and h > 0:
            return Problem(ERROR, 'box outside its image', f'{where} {beside}, so wholly outside.')
        mask = entry.get('segmentation')
        if self._with_mask() and isinstance(mask, dict) and mask.get('size') != [height, width]:
            text = f'{where} has a mask of (height, width) {mask.get("size")} in an image of {height} x {width}.'
            return Problem(ERROR, 'mask of another size', text)
        if w < 1 or h < 1 or (_is_finite(entry['area']) and entry['area'] <= 0):
            return Problem(
                WARNING, 'box without area', f'{where} {beside}, area {entry["area"]}: it will not be used.'
            )
        if self._with_mask() and isinstance(mask, list) and not any(_is_polygon(part) for part in mask):
            return Problem(WARNING, 'mask without area', f'{where} has no polygon of three points or more.')
        if min(x, y) < -MARGIN or x + w > width + MARGIN or y + h > height + MARGIN:
            return Problem(WARNING, 'box partly outside', f'{where} {beside}, so partly outside.')
        return None

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


USABLE = ('box partly outside', 'mask without area')


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_polygon(part: object) -> bool:
    return isinstance(part, list) and len(part) >= 6 and len(part) % 2 == 0
