"""Annotations in COCO's form, in any layout; other forms of boxes become this one."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from mmlape.errors import DataError
from mmlape.files import write_json
from mmlape.lab.datasets.formats.coco_file import class_names, require_form
from mmlape.lab.datasets.sources import MARKS
from mmlape.new.found import CLASSES, Found, Sample, common_folder, divide
from mmlape.new.listing import SPLITS, Listing, names_images, split_of
from mmlape.new.names import Names

KEYS = ('images', 'annotations', 'categories')


@dataclass
class CocoPart:
    """The annotations of a split, and the folder that its names of images begin in."""

    file: Path | None  # that has them; None if it is to be written
    folder: Path
    content: dict[str, Any]


@dataclass
class CocoData(Found):
    """Boxes, with or without masks: an annotation is (width, height), and a class and COCO's fields of each object."""

    unit: ClassVar[str] = 'objects'
    parts: dict[str, CocoPart] = field(default_factory=dict)
    as_it_is: bool = False  # whether files of annotations can be trained on as they are

    def add_objects(
        self, image: str, size: tuple[int, int], objects: list[tuple[str, dict]], file: str, hidden: int = 0
    ) -> None:
        """Add the objects of an image, of which so many are neither learnt nor counted as missed."""
        self.add(image, (size, objects), file, len(objects) - hidden)
        self.total += hidden

    def summarise(self) -> None:
        """Set classes, counts, the task and the content of a file for each split."""
        samples = [sample for part in self.of_split.values() for sample in part]
        outlined = [bool(one.get('segmentation')) for sample in samples for _, one in sample.annotation[1]]
        if self.task == 'masks' and not any(outlined):
            self.task = 'boxes'
        elif self.task == 'masks' and not all(outlined):
            raise DataError(
                f'{self.listing.root}: {sum(outlined)} of {len(outlined)} objects have an outline: --task boxes '
                'leaves the outlines out; for masks, draw those of the others'
            )
        for sample in self.of_split['train']:
            labels = [label for label, _ in sample.annotation[1]]
            self.counts.update(labels)
            self.shown_in.update(set(labels))
            self.most_objects = max(self.most_objects, len(labels))
        self.parts = {split: self._part(samples) for split, samples in self.of_split.items()}

    def _part(self, samples: Sequence[Sample]) -> CocoPart:
        folder = common_folder([sample.image for sample in samples])
        ids = {name: number for number, name in enumerate(self.classes, 1)}
        images, annotations = [], []
        for number, sample in enumerate(samples, 1):
            (width, height), objects = sample.annotation
            name = str(PurePosixPath(sample.image).relative_to(folder or '.'))
            images.append(dict(id=number, file_name=name, width=width, height=height))
            for label, one in objects:
                fields = dict(id=len(annotations) + 1, image_id=number, category_id=ids[label])
                annotations.append(one | fields)
        categories = [dict(id=number, name=name) for name, number in ids.items()]
        content = dict(images=images, categories=categories, annotations=annotations)
        return CocoPart(self._own_file(samples, folder), self.listing.root / folder, content)

    def _own_file(self, samples: Sequence[Sample], folder: str) -> Path | None:
        """Return the file that has these samples and no others, with the same classes, by names from the folder."""
        files = {sample.file for sample in samples}
        file = next(iter(files))
        if not self.as_it_is or len(files) > 1:
            return None
        content = self.listing.documents[file]
        same = {*(one['file_name'] for one in content['images'])} == {
            str(PurePosixPath(sample.image).relative_to(folder or '.')) for sample in samples
        }
        with open(self.listing.root / file, 'rb') as opened:
            marked = opened.read(3).startswith(tuple(MARKS))
        return self.listing.root / file if same and not marked and class_names(content) == self.classes else None

    def prepare(self, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
        """Write the files of annotations that are not there."""
        parts = self.parts
        if 'val' not in parts:
            drawn = zip(('train', 'val'), divide(self.of_split['train'], seed))
            parts = {split: self._part(samples) for split, samples in drawn}
        datasets = {}
        for split, part in parts.items():
            file = part.file or folder / f'{split}.json'
            if part.file is None:
                write_json(file, part.content)
            datasets[split] = dict(
                type='CocoDataset',
                ann_file=str(file),
                data_prefix=dict(img=f'{part.folder}/'),
                metainfo=dict(classes=CLASSES),
            )
        return datasets


def fields_of(box: Sequence[float] | None, polygons: Iterable[np.ndarray] = (), iscrowd: int = 0) -> dict[str, Any]:
    """Return COCO's fields of an object.

    Args:
        box: Left, top, right and bottom; None for those of the polygons.
        polygons: (corners, 2) each.
        iscrowd: Whether it is neither learnt nor counted as missed.
    """
    polygons = list(polygons)
    if box is None:
        corners = np.concatenate(polygons)
        box = [*corners.min(0).tolist(), *corners.max(0).tolist()]
    left, top, right, bottom = box
    fields = dict(bbox=[left, top, right - left, bottom - top], area=(right - left) * (bottom - top), iscrowd=iscrowd)
    if polygons:
        outlines = [polygon.flatten().tolist() for polygon in polygons]
        fields |= dict(area=float(sum(map(_area, polygons))), segmentation=outlines)
    return fields


def _area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def _unknown_documents(listing: Listing) -> list[DataError]:
    """Return the JSON files that look like annotations and are of no known form, or cannot be read."""
    errors = []
    for file, content in listing.documents.items():
        if isinstance(content, DataError):
            errors.append(content)
            continue
        is_known = isinstance(content, dict) and {*content} & {*KEYS, 'shapes', 'imagePath'}
        if not is_known and names_images((listing.root / file).read_text(encoding='utf-8', errors='replace')):
            lacks = f"is neither in COCO's form, an object with {', '.join(KEYS)}, nor in LabelMe's"
            errors.append(DataError(f'{listing.root / file} (a {type(content).__name__}) names images, and {lacks}'))
    return errors


def recognise(listing: Listing, names: Names) -> CocoData:
    """Return the annotations of a folder's JSON files in COCO's form."""
    data = CocoData('masks', "COCO's form", listing, unread=_unknown_documents(listing), as_it_is=True)
    of_files = {}
    for file, content in listing.documents.items():
        if not isinstance(content, dict) or not {*content} & {*KEYS} or 'shapes' in content:
            continue
        annotations = content.get('annotations')
        if isinstance(annotations, list) and all(isinstance(one, dict) and 'caption' in one for one in annotations):
            data.leave_out('captions', len(annotations))
            data.total += len(annotations)
            continue
        try:
            require_form(content, str(listing.root / file))
            of_files[file] = _images_of(listing, file, content)
        except DataError as error:
            data.unread.append(error)
    annotations = {file: listing.documents[file]['annotations'] for file in of_files}
    with_points = [file for file, objects in annotations.items() if any('keypoints' in one for one in objects)]
    for file in with_points if len(with_points) < len(of_files) else ():
        del of_files[file]
        data.leave_out('keypoints', len(annotations[file]))
        data.total += len(annotations[file])
    without_area = 0
    for file, images in of_files.items():
        without_area += _complete(annotations[file])
        try:
            _read(data, file, images)
        except DataError as error:
            data.unread.append(error)
    if without_area:
        data.as_it_is = False
        data.notes.append(f'{without_area} objects had no area, and have that of their box')
    return data


def _read(data: CocoData, file: str, images: dict[Any, str]) -> None:
    """Add the samples of a file, whose images are known by their ids."""
    content = data.listing.documents[file]
    labels = {one['id']: one['name'] for one in content['categories']}
    data.classes = tuple(dict.fromkeys([*data.classes, *labels.values()]))
    split = _split_of_name(file)
    objects: dict[Any, list[tuple[str, dict]]] = {number: [] for number in images}
    crowds: Counter[Any] = Counter()
    for place, one in enumerate(content['annotations'], 1):
        label, number = one.get('category_id'), one.get('image_id')
        for key, value, known in (('category_id', label, labels), ('image_id', number, images)):
            if value not in known:
                raise DataError(f'{data.listing.root / file}: annotation {place} has the unlisted {key} {value!r}')
        objects[number].append((labels[label], one))
        crowds[number] += bool(one.get('iscrowd'))
    for record in content['images']:
        number, image = record['id'], images[record['id']]
        data.add_objects(image, (record['width'], record['height']), objects[number], file, crowds[number])
        if split:
            data.splits[image] = split, f'the name of {file}'
    data.annotations_out += Counter(crowds=crowds.total())


def _split_of_name(file: str) -> str | None:
    """Return the split in the name of a list of images, such as 'instances_train2017.json'."""
    words = re.findall('[a-z]+', PurePosixPath(file).stem.lower())
    return next((SPLITS[word] for word in reversed(words) if word in SPLITS), None)


def _complete(annotations: list[dict]) -> int:
    """Give the area of its box to each object that has none, and return how many these are.

    What is malformed is left to the checks.
    """
    count = 0
    for one in annotations:
        box = one.get('bbox')
        if 'area' in one or not isinstance(box, list) or len(box) != 4:
            continue
        if all(isinstance(value, int | float) for value in box):
            one.update(area=box[2] * box[3], iscrowd=one.get('iscrowd', 0))
            count += 1
    return count


def _images_of(listing: Listing, file: str, content: dict) -> dict[Any, str]:
    """Return the path of each image of a file from the root, by its id.

    Names begin in the file's folder, or in another one that holds all of them.

    Raises:
        DataError: No folder has all images, or several have.
    """
    folder, known = str(PurePosixPath(file).parent), {*listing.images}
    names = {record['id']: record['file_name'].replace('\\', '/') for record in content['images']}
    if not names:
        raise DataError(f'{listing.root / file} lists no images')
    first = os.path.normpath(next(iter(names.values()))).lstrip('./')
    endings = [image for image in listing.images if f'/{image}'.endswith(f'/{first}')]
    starts = [folder, *(image[: -len(first)].rstrip('/') or '.' for image in endings)]
    paths = {}
    for start in dict.fromkeys(starts):
        found = {number: _inside(listing, start, name) for number, name in names.items()}
        missing = [names[number] for number, path in found.items() if path not in known]
        paths[start] = (len(missing), missing[:1], found)
    least = min(count for count, _, _ in paths.values())
    best = [start for start, (count, _, _) in paths.items() if count == least]
    if folder in best:
        best = [folder]
    if len(best) > 1:  # of the same names in folders of several splits
        best = [start for start in best if split_of(f'{start}/x') == _split_of_name(file)] or best
    count, missing, found = paths[best[0]]
    if count:
        raise DataError(
            f'{listing.root / file} lists {count} images that are not there, such as {missing[0]!r}: give a folder '
            'that holds images and annotations'
        )
    if len(best) > 1:
        folders = ' or '.join(sorted(best))
        raise DataError(f'{listing.root / file}: its images may be those of {folders}: give a folder that has one')
    return found


def _inside(listing: Listing, start: str, name: str) -> str:
    """Return the path from the root of an image that is named from a folder, or by its complete path."""
    if os.path.isabs(name):
        return os.path.relpath(name, listing.root.resolve())
    return os.path.normpath(f'{start}/{name}')
