"""Annotations in COCO's form, in any layout; other forms of boxes become this one."""

import math
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
from pycocotools import mask as coco_mask

from mmlape.errors import DataError
from mmlape.files import write_json
from mmlape.lab.datasets.formats.base import shorten
from mmlape.lab.datasets.formats.coco_file import extent_of, lies_beside, require_form
from mmlape.lab.datasets.images import Size
from mmlape.lab.inference.tiling import Tiling
from mmlape.new.class_names import Names
from mmlape.new.found_data import CLASSES, MIN_KEPT, Found, Part, Sample, common_folder, shrink
from mmlape.new.listing import SPLITS, Listing, split_of

SMALL = 16
"""Pixels of an object, the square root of its box's area, below which resized images lose too much."""
LARGE = 95
"""The percentile of the longer sides of objects that tiles share."""


@dataclass
class CocoData(Found):
    """Boxes, with or without masks: an annotation is (width, height), and a class and COCO's fields of each object."""

    unit: ClassVar[str] = 'objects'
    crowds: str = 'marked difficult'  # what the form calls objects that are neither learnt nor counted as missed
    beside: int = 0  # objects whose box was not that of their outline

    def add_objects(self, image: str, size: tuple[int, int], objects: list[tuple[str, dict]], file: str) -> None:
        """Add the objects of an image.

        The box of an outlined object is the extent of its outline. An object without area has that of its box.
        """
        for _, one in objects:
            if extent := extent_of(one):
                self.beside += not one['iscrowd'] and lies_beside(one.get('bbox') or extent, extent)
                one['bbox'] = extent
            if one.get('area') is None and (box := one.get('bbox')):
                one['area'] = box[2] * box[3]
        crowds = sum(one['iscrowd'] for _, one in objects)
        self.add(image, (size, objects), file, len(objects) - crowds)
        self.total += crowds
        self.leave_out(self.crowds, crowds)

    def summarise(self) -> None:
        """Set counts and the task."""
        self.counts = Counter()
        objects = [one for sample in self._samples() for _, one in sample.annotation[1]]
        outlined = [bool(one.get('segmentation')) for one in objects]
        self.has_polygons = all(isinstance(one.get('segmentation'), list) or one['iscrowd'] for one in objects)
        if self.task == 'masks' and not any(outlined):
            self.task = 'boxes'
        elif self.task == 'masks' and not all(outlined):
            raise DataError(
                f'{self.listing.root}: {sum(outlined)} of {len(outlined)} objects have an outline: --task boxes '
                'leaves the outlines out; for masks, draw those of the others'
            )
        for sample in self.of_split['train']:
            self.counts.update(label for label, one in sample.annotation[1] if not one['iscrowd'])
        used = {label for sample in self.samples for label, _ in sample.annotation[1]}
        self.classes = self.classes or tuple(sorted(used))
        if used and (unused := [name for name in self.classes if name not in used]):
            self.classes = tuple(name for name in self.classes if name in used)
            self.notes.append(f'no object of {shorten(unused)}, in no split: the model has no such class')

    def _samples(self) -> list[Sample]:
        return [sample for samples in self.of_split.values() for sample in samples]

    def tiling(self, side: int) -> Tiling | None:
        """Return windows where objects would become small; tiles share the size of a large object."""
        sides, before, after = self._sizes(side)
        if not len(sides) or np.median(after) >= min(SMALL, np.median(before)):
            return None
        return Tiling(side, min(math.ceil(np.percentile(sides, LARGE)), side // 2))

    def told(self, tiling: Tiling) -> Iterator[str]:
        """Yield what the owner should know of windows and tiles, a sentence each."""
        sides, before, after = self._sizes(tiling.side)
        sizes = f'{np.median(before):.0f} pixels large (median), and would be {np.median(after):.0f}'
        yield f'objects are {sizes} in images resized to {tiling.side}'
        yield from super().told(tiling)
        yield f'an object that a window cuts is learnt if {MIN_KEPT:.0%} of its box is inside'
        if large := np.mean(sides > tiling.side):
            yield f'{large:.1%} of the objects are larger than a window: they are found in parts'

    def _sizes(self, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the longer side and the size of each object, and that in images that are resized to a side."""
        boxes = [(box, shrink(sample.annotation[0], side)) for sample in self._samples() for box in boxes_of(sample)]
        sides = np.array([box[2:] for box, _ in boxes]).reshape(-1, 2)
        sizes = np.sqrt(sides.prod(1))
        return sides.max(1), sizes, sizes * [factor for _, factor in boxes]

    def fullest(self, tiling: Tiling | None = None) -> int:
        """Return the number of objects of the image, or of the tile, that has most."""
        counts = []
        for sample in self._samples():
            starts, sides = np.split(boxes_of(sample), 2, axis=1)
            width, height = size_of(sample)
            windows = tiling.windows(height, width) if tiling else [(slice(0, height), slice(0, width))]
            for rows, columns in windows:
                inside = (starts < (columns.stop, rows.stop)) & (starts + sides > (columns.start, rows.start))
                counts.append(int(inside.all(1).sum()))
        return max(counts)

    def annotated(self, sample: Sample) -> Size:
        """Return the size of an image, of which the boxes are."""
        return sample.annotation[0]

    def cut(self, sample: Sample, part: Part) -> Sample:
        """Return a part of a sample with the objects of which enough is there, moved into it."""
        size, objects = sample.annotation
        moved = [(label, fields) for label, one in objects if (fields := cut_object(one, part, size))]
        count = sum(not fields['iscrowd'] for _, fields in moved)
        return replace(sample, part=part, annotation=(size, moved), count=count)

    def remarks(self) -> list[str]:
        """Return what the owner should know, a sentence each."""
        used = sum(sample.count for sample in self._samples())
        twice = used - (self.total - self.annotations_out.total())
        return (
            super().remarks()
            + [f'{twice} objects lie across the lines, and are cut in both parts'] * (twice > 0)
            + [f'{self.beside} objects have a box beside their outline, whose extent is taken'] * (self.beside > 0)
        )

    def content(self, samples: Sequence[Sample], folder: str) -> dict[str, Any]:
        """Return the content of a file for samples whose names begin in a folder."""
        ids = {name: number for number, name in enumerate(self.classes, 1)}
        images, annotations = [], []
        for number, sample in enumerate(samples, 1):
            width, height = size_of(sample)
            name = str(PurePosixPath(sample.image).relative_to(folder or '.'))
            images.append(dict(id=number, file_name=name, width=width, height=height))
            for label, one in sample.annotation[1]:
                fields = dict(id=len(annotations) + 1, image_id=number, category_id=ids[label])
                annotations.append(one | fields)
        categories = [dict(id=number, name=name) for name, number in ids.items()]
        return dict(images=images, categories=categories, annotations=annotations)

    def labels(self, sample: Sample) -> set[str]:
        """Return the classes of the objects of an image that are learnt."""
        return {label for label, one in sample.annotation[1] if not one['iscrowd']}

    def prepare(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write a file of annotations for each split."""
        datasets = {}
        root, divided = self.written(folder)
        for split, samples in divided.items():
            file, images = folder / f'{split}.json', common_folder([sample.image for sample in samples])
            write_json(file, self.content(samples, images))
            datasets[split] = dict(
                type='CocoDataset',
                ann_file=str(file),
                data_prefix=dict(img=f'{root / images}/'),
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


def boxes_of(sample: Sample) -> np.ndarray:
    """Return left, top, width and height of the objects of a sample that are learnt, (N, 4)."""
    fields = [one for _, one in sample.annotation[1]]
    boxes = [one['bbox'] for one in fields if not one['iscrowd'] and one.get('bbox')]
    return np.array(boxes, float).reshape(-1, 4)


def size_of(sample: Sample) -> tuple[int, int]:
    """Return width and height of a sample."""
    width, height = sample.annotation[0]
    left, top, right, low = sample.part or (0, 0, width, height)
    return right - left, low - top


def cut_object(fields: dict[str, Any], part: Part, size: tuple[int, int]) -> dict[str, Any] | None:
    """Return COCO's fields of what is inside of a part of an image; None if that is too little.

    Args:
        fields: Of the object.
        part: Of the image.
        size: Of the complete image.
    """
    if not fields.get('bbox'):
        return fields  # which the check of the data names
    start, end = np.array(part[:2]), np.array(part[2:])
    corner, sides = np.split(np.array(fields['bbox'], float), 2)
    low, high = np.maximum(corner, start), np.minimum(corner + sides, end)
    share = (high - low).clip(0).prod() / max(sides.prod(), 1e-6)
    if share < MIN_KEPT and not (fields['iscrowd'] and share > 0):
        return None
    box = [*(low - start).tolist(), *(high - low).tolist()]
    outline = fields.get('segmentation')
    if not outline:
        return fields | dict(bbox=box, area=fields['area'] * float(share))
    if isinstance(outline, dict):
        runs = coco_mask.frPyObjects(outline, *size[::-1]) if isinstance(outline['counts'], list) else outline
        mask = coco_mask.encode(np.asfortranarray(coco_mask.decode(runs)[part[1] : part[3], part[0] : part[2]]))
        area = float(coco_mask.area(mask))
        cut = fields | dict(segmentation=mask | dict(counts=mask['counts'].decode()), area=area)
    else:
        polygons = [_clip(np.reshape(polygon, (-1, 2)), start, end) - start for polygon in outline]
        polygons = [polygon for polygon in polygons if len(polygon) > 2]
        outlines = [polygon.flatten().tolist() for polygon in polygons]
        cut = fields | dict(segmentation=outlines, area=float(sum(map(_area, polygons))))
    extent = extent_of(cut)
    return cut | dict(bbox=extent) if extent and cut['area'] else None


def _clip(polygon: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return what of a polygon (corners, 2) is in a box: after Sutherland and Hodgman, side by side."""
    for axis, sign, limit in ((0, 1, low[0]), (0, -1, -high[0]), (1, 1, low[1]), (1, -1, -high[1])):
        corners = []
        for first, second in zip(polygon, np.roll(polygon, -1, 0)):
            a, b = (sign * point[axis] - limit for point in (first, second))  # how far inside
            if a >= 0:
                corners.append(first)
            if a * b < 0:
                corners.append(first + (second - first) * a / (a - b))
        polygon = np.reshape(corners, (-1, 2))
    return polygon


def _area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def recognise(listing: Listing, names: Names) -> CocoData:
    """Return the annotations of a folder's JSON files in COCO's form.

    Raises:
        DataError: A file cannot be read.
    """
    data = CocoData('masks', "COCO's form", listing, crowds='crowds')
    for file, content in listing.documents.items():
        keys = {*content} if isinstance(content, dict) else set()
        is_labelme = keys & {'shapes', 'imagePath'}
        if keys & {'images', 'annotations'} and not is_labelme and not _are_captions(content.get('annotations')):
            require_form(content, str(listing.root / file))
            _read(data, file, content)
    return data


def _are_captions(annotations: Any) -> bool:
    is_list = isinstance(annotations, list) and bool(annotations)
    return is_list and all(isinstance(one, dict) and 'caption' in one for one in annotations)


def _read(data: CocoData, file: str, content: dict[str, Any]) -> None:
    """Add the samples of a file."""
    images = _images_of(data.listing, file, content)
    labels = {one['id']: one['name'] for one in content['categories']}
    data.classes = tuple(dict.fromkeys([*data.classes, *labels.values()]))
    split = _split_of_name(file)
    objects: dict[Any, list[tuple[str, dict]]] = {number: [] for number in images}
    for place, one in enumerate(content['annotations'], 1):
        label, number = one.get('category_id'), one.get('image_id')
        for key, value, known in (('category_id', label, labels), ('image_id', number, images)):
            if value not in known:
                raise DataError(f'{data.listing.root / file}: annotation {place} has the unlisted {key} {value!r}')
        one['iscrowd'] = int(one.get('iscrowd') or 0)
        objects[number].append((labels[label], one))
    for record in content['images']:
        number, image = record['id'], images[record['id']]
        data.add_objects(image, (int(record['width']), int(record['height'])), objects[number], file)
        if split:
            data.splits[image] = split, f'the name of {file}'


def _split_of_name(file: str) -> str | None:
    """Return the split in the name of a list of images, such as 'instances_train2017.json'."""
    words = re.findall('[a-z]+', PurePosixPath(file).stem.lower())
    return next((SPLITS[word] for word in reversed(words) if word in SPLITS), None)


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
    endings = {PurePosixPath(name).name: posixpath.normpath(name).lstrip('./') for name in names.values()}
    starts = {folder}
    for image in listing.images:
        ending = endings.get(PurePosixPath(image).name)
        if ending and f'/{image}'.endswith(f'/{ending}'):
            starts.add(image[: -len(ending)].rstrip('/') or '.')
    ranks = {}
    for start in starts:
        missing = [name for name in names.values() if _inside(listing, start, name) not in known]
        # of the same names in folders of several splits, that of the file's split
        other_split = split_of(f'{start}/x') != _split_of_name(file)
        ranks[start] = (len(missing), start != folder, other_split, missing[:1])
    best = [start for start, rank in ranks.items() if rank[:3] == min(ranks.values())[:3]]
    count, *_, missing = ranks[best[0]]
    if count:
        raise DataError(
            f'{listing.root / file} lists {count} images that are not there, such as {missing[0]!r}: give a folder '
            'that holds images and annotations'
        )
    if len(best) > 1:
        folders = ' or '.join(sorted(best))
        raise DataError(f'{listing.root / file}: its images may be those of {folders}: give a folder that has one')
    return {number: _inside(listing, best[0], name) for number, name in names.items()}


def _inside(listing: Listing, start: str, name: str) -> str:
    """Return the path from the root of an image that is named from a folder, or by its complete path."""
    if os.path.isabs(name):
        return os.path.relpath(name, listing.root.resolve())
    return posixpath.normpath(f'{start}/{name}')
