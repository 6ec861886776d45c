"""COCO's format: a directory of images, and one JSON file of annotations."""

import functools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mmlape.datasets.formats.base import (
    ERROR,
    WARNING,
    DataIssue,
    DataSource,
    ImageEntry,
    ImageFacts,
    shorten,
)
from mmlape.datasets.formats.coco_rules import (
    FORM,
    MARGIN,
    AnnotationRules,
    Defect,
    is_box,
    is_number,
)
from mmlape.datasets.images import Annotated, require_annotated_size
from mmlape.errors import DataError
from mmlape.files import file_version, parse_json

HINT = 'Download or unpack it again.'
FILE_TWICE = (
    ': each record is trained on and evaluated with its own objects only. Put them into one record'
)
WITHOUT_MASKS = (
    'has boxes and no masks, which the config loads and evaluates. For boxes only, set '
    "with_mask=False in every pipeline, mask_head=None and mask_roi_extractor=None in a model's "
    "roi_head, and metric='bbox' in the evaluators, or take a config of boxes "
    '(configs/detection/{atss,gfl,detr,sparse-rcnn}_*).'
)
PACKED = {b'\x1f\x8b': 'gzip', b'PK': 'zip', b'BZh': 'bzip2', b'\xfd7zXZ': 'xz'}
"""First bytes of a compressed file."""


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_side(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0 and value == int(value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    'categories': dict(id=_is_id, name=_is_name),
    'images': dict(id=_is_id, file_name=_is_name, height=_is_side, width=_is_side),
    'annotations': {},
}
"""The fields that the entries of each list must have, and what they must be."""
_WANTED: dict[Callable[[Any], bool], str] = {
    _is_id: 'a whole number or a text',
    _is_side: 'a number of pixels',
    _is_name: 'a text',
}


def read_coco(path: str) -> dict[str, Any]:
    """Read an annotation file.

    COCO's train2017, 450 MB, takes 10 s and 2.5 GB of memory, which MMDetection takes again and in
    every process. The check of its annotations takes about as long.

    Returns:
        Its content, with ``annotations`` in any case: a list of test images has none.

    Raises:
        DataError: It is empty, truncated, not JSON, or not of COCO's form.
    """
    try:
        content = parse_json(_read_text(path), unique_keys=True)
    except ValueError as error:
        raise DataError(f'Annotation file {path} is not valid JSON ({error}). {HINT}') from error
    if isinstance(content, list):
        raise DataError(
            f'Annotation file {path} is not of COCO form: a list, as a file of predictions is, not '
            'an object with "images", "annotations" and "categories".'
        )
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


def _read_text(path: str) -> str:
    """Read a file as MMDetection does, in UTF-8."""
    try:
        with open(path, 'rb') as file:
            data = file.read()
    except OSError as error:
        raise DataError(f'Annotation file {path} cannot be read: {error.strerror}.') from error
    if not data.strip():
        raise DataError(f'Annotation file {path} is empty. {HINT}')
    for start, name in PACKED.items():
        if data.startswith(start):
            raise DataError(f'Annotation file {path} is compressed ({name}): unpack it.')
    encoding = json.detect_encoding(data)
    if encoding != 'utf-8':
        found = 'a byte order mark' if encoding == 'utf-8-sig' else encoding.upper()
        raise DataError(
            f'Annotation file {path} has {found}, which MMDetection does not read: save it as '
            'UTF-8 without a byte order mark.'
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f'Annotation file {path} is not UTF-8 (byte {error.start}), perhaps Latin-1: save it as '
            'UTF-8.'
        ) from error


def class_names(coco: dict[str, Any]) -> tuple[str, ...]:
    """Return the category names in the order of the file, which is MMDetection's label order."""
    return tuple(category['name'] for category in coco['categories'])


@functools.lru_cache
def _listed_classes(path: str, version: tuple[int, int]) -> tuple[str, ...]:
    """Read the classes of a version of a file once: a study moves the data of each of its arms."""
    return class_names(read_coco(path))


def _find_defect(entry: Any, fields: dict[str, Callable[[Any], bool]]) -> str | None:
    """Say what an entry lacks: to be an object, one of these fields, the type of one, or ids that can be hashed."""
    if not isinstance(entry, dict):
        return 'that is not an object'
    for name, is_right in fields.items():
        if name not in entry:
            return f'without "{name}"'
        if not is_right(entry[name]):
            return f'with an invalid "{name}" ({entry[name]!r} is not {_WANTED[is_right]})'
    invalid = [
        name
        for name in ('id', 'image_id', 'category_id')
        if isinstance(entry.get(name), list | dict)
    ]
    return f'with an invalid "{invalid[0]}"' if invalid else None


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


def _find_other_form(
    annotations: list[dict], images: Mapping[Any, dict], path: str
) -> Iterator[DataIssue]:
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
        return _listed_classes(self.ann_file, file_version(self.ann_file))

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
        self.summary.num_classes, self.summary.images = (
            len(self.summary.classes),
            len(coco['images']),
        )
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
        self.summary.facts['crowds'] = sum(
            bool(annotation.get('iscrowd')) for annotation in coco['annotations']
        )
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
            else:
                found.add(annotation['image_id'])
        return found, left_out

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
        if outside := [index for index in indices if not -len(used) <= index < len(used)]:
            raise DataError(
                f'indices of the {self.split} dataset has {shorten(outside)}, but {self.ann_file} '
                f'has {len(used)} images to choose from.'
            )
        return [used[index] for index in indices]

    def _nothing_left(self, count: int, left_out: Counter) -> Iterator[DataIssue]:
        """Yield that nothing is to be learnt or evaluated, unless predictions are written only."""
        if self.split != 'train' and all(
            options.get('format_only') for _, options in self._ap_metrics
        ):
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
                if os.path.basename(names.get(record['id'], ''))
                != os.path.basename(record['file_name'])
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
