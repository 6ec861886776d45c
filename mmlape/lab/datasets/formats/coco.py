"""COCO's format: a directory of images, and one JSON file of annotations."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mmlape.errors import DataError
from mmlape.files import file_version
from mmlape.lab.datasets.formats.base import DataIssue, DataSource, ImageEntry, ImageFacts, error, shorten, warning
from mmlape.lab.datasets.formats.coco_file import FORM, MARGIN, class_names, find_defect, listed_classes, read_coco
from mmlape.lab.datasets.images import Annotated, require_annotated_size

FILE_TWICE = ': each record is trained on and evaluated with its own objects only. Put them into one record'
WITHOUT_MASKS = (
    'has boxes and no masks, which the config loads and evaluates. For boxes only, set '
    "with_mask=False in every pipeline, mask_head=None and mask_roi_extractor=None in a model's "
    "roi_head, and metric='bbox' in the evaluators, or take a config of boxes "
    '(configs/{faster_rcnn,atss,gfl,detr,sparse_rcnn}).'
)


def _find_other_form(annotations: list[dict], images: Mapping[Any, dict], path: str) -> Iterator[DataIssue]:
    """Find boxes that are all corners or fractions."""
    sized = []
    for annotation in annotations:
        box, record = annotation.get('bbox'), images.get(annotation.get('image_id'))
        if record is not None and box:
            sized.append((*box, record['width'], record['height']))
    if not sized:
        return
    start = f'The boxes of annotation file {path} are'
    outside = sum(x + w > width + MARGIN or y + h > height + MARGIN for x, y, w, h, width, height in sized)
    corners = all(x < w <= width + MARGIN and y < h <= height + MARGIN for x, y, w, h, width, height in sized)
    if 4 * outside > len(sized) and corners:
        yield error(
            'boxes of another form',
            f'{start} x1, y1, x2, y2: as x, y, width, height, {outside} of {len(sized)} do not fit '
            f'their images. {FORM}: subtract x1 and y1.',
            len(sized),
        )
    if all(max(box[:4]) <= 1 for box in sized):
        yield error(
            'boxes of another form',
            f'{start} fractions of the image. {FORM}: multiply by its width and height.',
            len(sized),
        )


def _find_duplicates(coco: dict[str, Any], path: str) -> Iterator[DataIssue]:
    for what, records, key, effect in (
        ('category id', coco['categories'], 'id', ''),
        ('image id', coco['images'], 'id', ''),
        ('file name', coco['images'], 'file_name', FILE_TWICE),
        ('annotation id', coco['annotations'], 'id', ''),
    ):
        counts = Counter(record[key] for record in records if record.get(key) is not None)
        values = [value for value, count in counts.items() if count > 1]
        if values:
            shown = shorten(map(repr, values))
            yield error(
                f'duplicate {what}',
                f'Annotation file {path} has the {what} {shown} more than once{effect}.',
                len(values),
            )
    boxes = Counter(
        (one.get('image_id'), one.get('category_id'), *map(round, one['bbox']))
        for one in coco['annotations']
        if one.get('bbox') and not one.get('iscrowd')
    )
    if twice := {key: count - 1 for key, count in boxes.items() if count > 1}:
        (image, category, *box), *_ = twice
        yield warning(
            'object annotated twice',
            f'Annotation file {path} has {sum(twice.values())} objects more than once, of one class and one box: the '
            f'first is in image {image!r}, of category {category!r} in {box}. Each is learnt, and missed in scores, '
            'so often: remove the copies.',
            sum(twice.values()),
        )


class CocoSource(DataSource):
    """COCO's format: a directory of images, and one JSON file of annotations."""

    instructions = (
        'COCO: unpack train2017.zip, val2017.zip and annotations_trainval2017.zip from '
        'https://cocodataset.org so that the data root holds train2017/, val2017/ and '
        'annotations/instances_{train,val}2017.json'
    )
    mini_folder = 'coco'
    pack_transform = 'PackDetInputs'
    selects_classes = True

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the categories."""
        if not os.path.isfile(self.ann_file):
            return None
        return listed_classes(self.ann_file, file_version(self.ann_file))

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
        self.summary.num_classes, self.summary.images = (len(self.summary.classes), len(coco['images']))
        self.summary.sampled = False
        yield from _find_duplicates(coco, self.ann_file)
        yield from self._check_annotations(coco)
        yield from self._find_images(coco)
        yield from self._check_evaluated(coco)

    def _find_images(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        present, missing = {entry.name for entry in os.scandir(self.image_dir) if entry.is_file()}, []
        for record in coco['images']:
            path = os.path.join(self.image_dir, record['file_name'])
            if record['file_name'] in present or os.path.isfile(path):
                self.entries.append(ImageEntry(path, record))
            else:
                missing.append(path)
        yield from self.missing_images(missing, len(coco['images']))

    @property
    def _ap_metrics(self) -> list[tuple[type, dict]]:
        """The metrics of its split that compute AP by pycocotools."""
        return [
            (cls, options)
            for cls, options in self.metrics
            if cls and any(base.__name__ == 'CocoMetric' for base in cls.__mro__)
        ]

    def _check_annotations(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        """Check each annotation, and that something is left to be learnt or evaluated."""
        path, annotations, metrics = self.ann_file, coco['annotations'], self._ap_metrics
        evaluated = any('segm' in (options.get('metric') or ()) for _, options in metrics)
        with_mask = evaluated or any(step.get('with_mask') for step in self.cfg.get('pipeline') or ())
        masked = any(annotation.get('segmentation') for annotation in annotations)
        if with_mask and annotations and not masked:
            yield error('boxes without masks', f'Annotation file {path} {WITHOUT_MASKS}')
        labels = {category['id']: label for label, category in enumerate(coco['categories'])}
        images = {record['id']: record for record in coco['images']}
        train = self.split == 'train'
        as_it_is = not all(getattr(cls, 'any_ids', False) for cls, _ in metrics)
        yield from _find_other_form(annotations, images, path)
        defects = [find_defect(one, labels, images, with_mask and masked, train, as_it_is) for one in annotations]
        for number, (annotation, defect) in enumerate(zip(annotations, defects), start=1):
            if defect is not None:
                known = annotation.get('id')
                name = repr(known) if known is not None else f'number {number} of the list'
                yield replace(defect, message=f'Annotation file {path}: annotation {name} {defect.message}.')
        self.summary.facts['annotations'] = len(annotations)
        self.summary.facts['crowds'] = sum(bool(annotation.get('iscrowd')) for annotation in annotations)
        known_labels = (labels.get(annotation.get('category_id')) for annotation in annotations)
        self.summary.labels.update(label for label in known_labels if label is not None)
        self.summary.seen = set(self.summary.labels)
        learnt, reasons = self._find_objects(coco, images, defects)
        empty = [record['file_name'] for record in coco['images'] if record['id'] not in learnt]
        self.summary.facts['images without objects'] = len(empty)
        # as MMDetection leaves images out, whose sampler then waits for ever
        smallest = 0 if self.option('test_mode') else (self.option('filter_cfg') or {}).get('min_size', 0)
        used = [record for record in coco['images'] if min(record['width'], record['height']) >= smallest]
        if not used:
            yield error(
                'no image left',
                f'No image of {path} has sides of {smallest} pixels or more, the min_size of its filter_cfg.',
            )
        elif learnt.isdisjoint(record['id'] for record in used):
            yield from self._nothing_left(len(annotations), reasons)
        elif empty:
            count = f'{len(empty)} of {len(coco["images"])} images'
            left_out = (self.option('filter_cfg') or {}).get('filter_empty_gt')
            effect = 'are left out of training' if left_out else 'are trained on as background'
            if not train:
                effect = 'so each prediction there counts as false'
            yield warning(
                'image without objects', f'{count} of {path} have no object, {effect}: {shorten(empty)}.', len(empty)
            )

    def _find_objects(
        self, coco: dict[str, Any], records: Mapping[Any, dict], defects: list[DataIssue | None]
    ) -> tuple[set, Counter]:
        """Return the ids of the images with objects to learn or to evaluate, and why others are left out."""
        names = self.classes or self.summary.classes
        wanted = {category['id'] for category in coco['categories'] if category['name'] in names}
        images, left_out = set(), Counter[str]()
        train = self.split == 'train'
        for annotation, defect in zip(coco['annotations'], defects):
            if annotation.get('category_id') not in wanted:
                left_out['of classes that the config does not have'] += 1
            elif annotation.get('iscrowd'):
                left_out['crowds'] += 1
            elif annotation.get('image_id') not in records:
                left_out['of images that are not listed'] += 1
            elif train and annotation.get('ignore'):
                left_out['with "ignore": 1'] += 1
            elif train and defect is not None:
                left_out[defect.topic] += 1
            else:
                images.add(annotation['image_id'])
        return images, left_out

    def _nothing_left(self, count: int, left_out: Counter) -> Iterator[DataIssue]:
        """Yield that nothing is to be learnt or evaluated, unless predictions are written only."""
        if self.split != 'train' and all(options.get('format_only') for _, options in self._ap_metrics):
            return
        reasons = ', '.join(f'{number} {reason}' for reason, number in left_out.items())
        of_these = f'of {count} annotations, {reasons}' if reasons else 'it has no annotations'
        purpose, fix = 'learn', self.hint()
        if self.split != 'train':
            purpose = 'evaluate'
            fix = (
                'AP would be -1; to write predictions only, set format_only=True and outfile_prefix in the evaluator.'
            )
        yield error('no object', f'Annotation file {self.ann_file} has nothing to {purpose}: {of_these}. {fix}')

    def _check_evaluated(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        """Check that the annotation files of its evaluators, where they are others, list its images."""
        for _, options in self._ap_metrics:
            path = options.get('ann_file') or self.ann_file
            if '://' in path or not os.path.isfile(path) or os.path.samefile(path, self.ann_file):
                continue
            names = {record['id']: os.path.basename(record['file_name']) for record in read_coco(path)['images']}
            wrong = [
                record for record in coco['images'] if names.get(record['id']) != os.path.basename(record['file_name'])
            ]
            if wrong:
                yield error(
                    'evaluator of other images',
                    f'{len(wrong)} of {len(coco["images"])} images of {self.ann_file} are not in '
                    f'{path}, the ann_file of {self.split}_evaluator, or have another id there; the first is '
                    f'{wrong[0]["file_name"]}. Give the evaluator the ann_file of its dataset; test several '
                    'files one by one.',
                    len(wrong),
                )

    def annotated(self, entry: ImageEntry) -> Annotated:
        """Return the size of an image's record."""
        return Annotated((entry.annotation['width'], entry.annotation['height']))

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Compare the size of an image with its record's."""
        with facts.noting('image of another size'):
            require_annotated_size(entry.path, size, self.annotated(entry).size, self.ann_file)
