"""COCO's format: a directory of images, and one JSON file of annotations."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mmlape.errors import DataError
from mmlape.files import file_version
from mmlape.lab.datasets.formats.base import ERROR, WARNING, DataIssue, DataSource, ImageEntry, ImageFacts, shorten
from mmlape.lab.datasets.formats.coco_file import class_names, listed_classes, read_coco
from mmlape.lab.datasets.formats.coco_rules import FORM, MARGIN, AnnotationRules, Defect, is_box, is_number
from mmlape.lab.datasets.images import Annotated, require_annotated_size

FILE_TWICE = ': each record is trained on and evaluated with its own objects only. Put them into one record'
WITHOUT_MASKS = (
    'has boxes and no masks, which the config loads and evaluates. For boxes only, set '
    "with_mask=False in every pipeline, mask_head=None and mask_roi_extractor=None in a model's "
    "roi_head, and metric='bbox' in the evaluators, or take a config of boxes "
    '(configs/{faster_rcnn,atss,gfl,detr,sparse_rcnn}).'
)


def _listed(value: Any) -> Sequence:
    """Return the metrics of an evaluator, given as one or a list."""
    return value if isinstance(value, list | tuple) else [value]


def _missing_masks(coco: dict[str, Any], rules: AnnotationRules, path: str) -> Iterator[DataIssue]:
    """Yield that no annotation has a mask, rather than each of them."""
    annotations = coco['annotations']
    if rules.with_mask and annotations and not any(one.get('segmentation') for one in annotations):
        yield DataIssue(ERROR, 'boxes without masks', f'Annotation file {path} {WITHOUT_MASKS}')


def _annotation_issues(
    coco: dict[str, Any], rules: AnnotationRules, defects: list[Defect | None], path: str
) -> Iterator[DataIssue]:
    """Yield what is wrong with the annotations of a file, first of all together."""
    annotations = coco['annotations']
    yield from _find_other_form(annotations, rules.images, path)
    yield from _find_repeated(annotations, path)
    for number, (annotation, defect) in enumerate(zip(annotations, defects), start=1):
        if defect is not None:
            known = annotation.get('id')
            name = repr(known) if known is not None else f'number {number} of the list'
            message = f'Annotation file {path}: annotation {name} {defect.description}.'
            yield DataIssue(defect.severity, defect.topic, message)


def _find_other_form(annotations: list[dict], images: Mapping[Any, dict], path: str) -> Iterator[DataIssue]:
    """Find boxes that are all corners or fractions, and areas of another scale."""
    sized = []
    for annotation in annotations:
        box, record = annotation.get('bbox'), images.get(annotation.get('image_id'))
        if record is not None and is_box(box):
            sized.append((*box, record['width'], record['height'], annotation.get('area')))
    if not sized:
        return
    start = f'The boxes of annotation file {path} are'
    outside = sum(x + w > width + MARGIN or y + h > height + MARGIN
                  for x, y, w, h, width, height, _ in sized)  # fmt: skip
    corners = all(x < w <= width + MARGIN and y < h <= height + MARGIN
                  for x, y, w, h, width, height, _ in sized)  # fmt: skip
    if 4 * outside > len(sized) and corners:
        message = (
            f'{start} x1, y1, x2, y2: as x, y, width, height, {outside} of {len(sized)} do not fit '
            f'their images. {FORM}: subtract x1 and y1.'
        )
        yield DataIssue(ERROR, 'boxes of another form', message, len(sized))
    if all(max(one[:4]) <= 1 for one in sized):
        message = f'{start} fractions of the image. {FORM}: multiply by its width and height.'
        yield DataIssue(ERROR, 'boxes of another form', message, len(sized))
    areas = [(area, w * h) for _, _, w, h, _, _, area in sized if is_number(area) and w * h > 0]
    wrong = sum(not box / 100 <= area <= 1.1 * box + 1 for area, box in areas if area > 0)
    if 2 * wrong > len(areas):
        message = (
            f'{wrong} of {len(areas)} areas of annotation file {path} are larger than their boxes, '
            'or a hundredth of them: AP of small, medium and large objects takes them as they are.'
        )
        yield DataIssue(WARNING, 'areas of another scale', message, wrong)


def _find_repeated(annotations: list[dict], path: str) -> Iterator[DataIssue]:
    """Find objects that are annotated twice."""
    objects = Counter(
        (annotation.get('image_id'), annotation.get('category_id'), *annotation['bbox'])
        for annotation in annotations
        if is_box(annotation.get('bbox'))
    )
    repeated = [found for found, count in objects.items() if count > 1]
    if repeated:
        image, category, *box = repeated[0]
        message = (
            f'Annotation file {path} has {len(repeated)} objects more than once; the first is the '
            f'box {box} of image {image!r}, category {category!r}. A prediction matches one of '
            'them, so AP counts the others as missed.'
        )
        yield DataIssue(WARNING, 'object annotated twice', message, len(repeated))


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
            message = f'Annotation file {path} has the {what} {shown} more than once{effect}.'
            yield DataIssue(ERROR, f'duplicate {what}', message, len(values))


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
        return listed_classes(self.ann_file, file_version(self.ann_file))

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check paths, categories, every annotation, and that the images are there."""
        self.require(self.root, 'Data root')
        if os.path.isdir(self.ann_file):
            raise DataError(f'Annotation file {self.ann_file} is a folder. {self.hint()}')
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
        folder, missing, self.entries = self.image_dir, [], []
        present = {entry.name for entry in os.scandir(folder) if entry.is_file()}
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

    @property
    def _ap_metrics(self) -> list[tuple[type, dict]]:
        """The metrics of its split that compute AP by pycocotools."""
        return [
            (cls, options)
            for cls, options in self.metrics
            if cls and any(base.__name__ == 'CocoMetric' for base in cls.__mro__)
        ]

    def _rules(self, coco: dict[str, Any], loaded: bool = True) -> AnnotationRules:
        """Return what the annotations of a file must be: of the dataset, or of its evaluators alone."""
        metrics = self._ap_metrics
        kinds = [kind for _, options in metrics for kind in _listed(options.get('metric'))]
        return AnnotationRules(
            {category['id']: label for label, category in enumerate(coco['categories'])},
            {record['id']: record for record in coco['images']},
            with_mask='segm' in kinds or (loaded and self.has_transform(with_mask=True)),
            train=self.split == 'train',
            as_it_is=not all(getattr(cls, 'any_ids', False) for cls, _ in metrics),
        )

    def _check_annotations(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        rules = self._rules(coco)
        yield from _missing_masks(coco, rules, self.ann_file)
        defects = rules.find_defects(coco['annotations'])
        yield from _annotation_issues(coco, rules, defects, self.ann_file)
        self.summary.facts['annotations'] = len(coco['annotations'])
        self.summary.facts['crowds'] = sum(bool(annotation.get('iscrowd')) for annotation in coco['annotations'])
        self.summary.labels.update(
            rules.labels[annotation['category_id']]
            for annotation in coco['annotations']
            if annotation.get('category_id') in rules.labels
        )
        self.summary.seen = set(self.summary.labels)
        learnt, left_out = self._find_objects(coco, rules, defects)
        empty = [record['file_name'] for record in coco['images'] if record['id'] not in learnt]
        self.summary.facts['images without objects'] = len(empty)
        used = self._used_images(coco)
        if not used:
            message = (
                f'The {self.split} dataset keeps none of the {len(coco["images"])} images of '
                f'{self.ann_file}: see its filter_cfg and indices.'
            )
            yield DataIssue(ERROR, 'no image left', message)
        elif learnt.isdisjoint(record['id'] for record in used):
            yield from self._nothing_left(len(coco['annotations']), left_out)
        elif empty:
            count = f'{len(empty)} of {len(coco["images"])} images'
            effect = ' to learn' if rules.train else ', so each prediction there counts as false'
            message = f'{count} of {self.ann_file} have no object{effect}: {shorten(empty)}.'
            yield DataIssue(WARNING, 'image without objects', message, len(empty))

    def _wanted_categories(self, coco: dict[str, Any]) -> set:
        """Return the ids of the categories that are classes of the config."""
        wanted = self.classes or self.summary.classes
        return {category['id'] for category in coco['categories'] if category['name'] in wanted}

    def _find_objects(
        self, coco: dict[str, Any], rules: AnnotationRules, defects: list[Defect | None]
    ) -> tuple[set, Counter]:
        """Return the ids of the images with objects to learn or to evaluate, and why others are left out."""
        ids, found, left_out = self._wanted_categories(coco), set(), Counter[str]()
        filtered = self._smallest_box()
        for annotation, defect in zip(coco['annotations'], defects):
            if annotation.get('category_id') not in ids:
                left_out['of classes that the config does not have'] += 1
            elif annotation.get('iscrowd'):
                left_out['crowds'] += 1
            elif annotation.get('image_id') not in rules.images:
                left_out['of images that are not listed'] += 1
            elif rules.train and annotation.get('ignore'):
                left_out['with "ignore": 1'] += 1
            elif rules.train and defect is not None and not defect.usable:
                left_out[defect.topic] += 1
            elif rules.train and self._is_filtered(annotation, rules.images, *filtered):
                left_out['below min_gt_bbox_wh of FilterAnnotations'] += 1
            else:
                found.add(annotation['image_id'])
        return found, left_out

    def _smallest_box(self) -> tuple[tuple[float, float], float]:
        """Return the smallest box that the pipeline keeps, and the longest side that it enlarges images to."""
        smallest, longest = (0.0, 0.0), 0.0
        steps = list(self.cfg.get('pipeline') or ())
        while steps:
            step = steps.pop(0)
            if isinstance(step, list | tuple):  # of RandomChoice
                steps = [*step, *steps]
                continue
            steps = [*(step.get('transforms') or ()), *steps]
            sides = np.ravel(step.get('scale') or step.get('scales') or step.get('img_scale') or 0)
            ratios = np.ravel(step.get('ratio_range') or step.get('scale_factor') or 1)
            longest = max(longest, float(sides.max() * ratios.max()))
            if str(step.get('type')).endswith('FilterAnnotations') and step.get('by_box', True):
                smallest = tuple(step.get('min_gt_bbox_wh', (1, 1)))
        return smallest, longest

    def _is_filtered(
        self, annotation: dict, images: Mapping[Any, dict], smallest: tuple[float, float], longest: float
    ) -> bool:
        """Return whether a box is too small for the pipeline, however much it enlarges the image."""
        record = images[annotation['image_id']]
        scale = max(longest / min(record['width'], record['height']), 1)
        return any(side * scale < least for side, least in zip(annotation['bbox'][2:], smallest))

    def _used_images(self, coco: dict[str, Any]) -> list[dict]:
        """Return the records that the dataset keeps, as MMDetection selects them."""
        used = coco['images']
        options = {} if self.option('test_mode') else self.option('filter_cfg') or {}
        if options.get('filter_empty_gt'):
            ids = self._wanted_categories(coco)
            annotated = {
                annotation.get('image_id')
                for annotation in coco['annotations']
                if annotation.get('category_id') in ids
            }
            used = [record for record in used if record['id'] in annotated]
        smallest = options.get('min_size', 0)
        used = [record for record in used if min(record['width'], record['height']) >= smallest]
        indices = self.option('indices')
        if isinstance(indices, int):
            return used[:indices] if indices >= 0 else used[indices:]
        if indices is None:
            return used
        self.check_indices(len(used))
        return [used[index] for index in indices]

    def _nothing_left(self, count: int, left_out: Counter) -> Iterator[DataIssue]:
        """Yield that nothing is to be learnt or evaluated, unless predictions are written only."""
        if self.split != 'train' and all(options.get('format_only') for _, options in self._ap_metrics):
            return
        reasons = ', '.join(f'{number} {reason}' for reason, number in left_out.items())
        of_these = f'of {count} annotations, {reasons}' if reasons else 'it has no annotations'
        if self.split == 'train':
            message = f'{self.ann_file} has nothing to learn: {of_these}. {self.hint()}'
        else:
            message = (
                f'{self.ann_file} has nothing to evaluate: {of_these}. AP would be -1; to write '
                'predictions only, set format_only=True and outfile_prefix in the evaluator.'
            )
        yield DataIssue(ERROR, 'no object', f'Annotation file {message}')

    def _check_evaluated(self, coco: dict[str, Any]) -> Iterator[DataIssue]:
        """Check the annotation files of its evaluators that are not its own."""
        for _, options in self._ap_metrics:
            path = options.get('ann_file') or self.ann_file
            if '://' in path or not os.path.isfile(path) or os.path.samefile(path, self.ann_file):
                continue
            other = read_coco(path)
            yield from _find_duplicates(other, path)
            rules = self._rules(other, loaded=False)
            yield from _missing_masks(other, rules, path)
            defects = rules.find_defects(other['annotations'])
            yield from _annotation_issues(other, rules, defects, path)
            names = {record['id']: record['file_name'] for record in other['images']}
            wrong = [
                record
                for record in coco['images']
                if os.path.basename(names.get(record['id'], '')) != os.path.basename(record['file_name'])
            ]
            if wrong:
                found = names.get(wrong[0]['id'])
                message = (
                    f'{len(wrong)} of {len(coco["images"])} images of {self.ann_file} are not in '
                    f'{path}, the ann_file of {self.split}_evaluator; the first is '
                    f'{wrong[0]["file_name"]}, whose id {wrong[0]["id"]!r} '
                    f'{f"is that of {found}" if found else "is not listed"} there. Give the '
                    'evaluator the ann_file of its dataset; test several files one by one.'
                )
                yield DataIssue(ERROR, 'evaluator of other images', message, len(wrong))

    def annotated(self, entry: ImageEntry) -> Annotated:
        """Return the size of an image's record."""
        return Annotated((entry.annotation['width'], entry.annotation['height']))

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:
        """Compare the size of an image with its record's."""
        try:
            require_annotated_size(entry.path, size, self.annotated(entry).size, self.ann_file)
        except DataError as error:
            facts.issues.append(DataIssue(ERROR, 'image of another size', str(error)))
