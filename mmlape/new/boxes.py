"""YOLO's text files, Pascal VOC's XML files and LabelMe's JSON files, as annotations in COCO's form."""

import math
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import read_lines, read_text
from mmlape.lab.datasets.images import shown_size
from mmlape.lab.decoding import UnfitError, decoded
from mmlape.new.class_names import Names
from mmlape.new.coco import CocoData, fields_of
from mmlape.new.listing import NAMES, SPLITS, Listing, match_images

YOLO, VOC, LABELME = "YOLO's form", "Pascal VOC's form", "LabelMe's form"
NO_IMAGE = 'no image of this name'
MARGIN = 0.01
"""How far a place of YOLO may be outside of its image, as a share of that: programs round."""
CORNERS = 32
"""Of the polygon that stands for a circle of LabelMe."""
POINTS = {'polygon': 3, 'rectangle': 2, 'circle': 2, 'rotation': 4}
"""How many points the shapes of LabelMe that become objects have at least."""
Objects = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Shape:
    """An outline in a file of LabelMe or X-AnyLabeling."""

    label: Any
    points: Any = None
    shape_type: str = 'polygon'
    group_id: Any = None
    difficult: bool = False
    flags: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelMe:
    """A file of LabelMe or X-AnyLabeling."""

    imagePath: str
    shapes: list[Shape]
    imageWidth: int = 0
    imageHeight: int = 0


def recognise_yolo(listing: Listing, names: Names, given: str | None = None) -> CocoData:
    """Return the boxes or outlines of YOLO's text files, with the names and folders of a description.

    Args:
        listing: The files.
        names: Of the classes, by their numbers, where the data have none.
        given: The description that its owner has given.
    """
    data = CocoData('masks', YOLO, listing)
    files = [given] if given else listing.of_suffix('.yaml', '.yml')
    descriptions = {file: content for file in files if (content := _description(listing.root / file)) is not None}
    if len(descriptions) > 1:
        shown = f'several descriptions ({", ".join(descriptions)}): give one, as in mmlape new'
        raise DataError(f'{listing.root} has {shown} {listing.root / next(iter(descriptions))}')
    lists = {*listing.split_lists, *(file for file in listing.files if PurePosixPath(file).name in NAMES)}
    matches = match_images([file for file in listing.of_suffix('.txt') if file not in lists], listing.images)
    matched = [file for file, images in matches.items() if images]
    rows: dict[str, list[list[float]]] = {}
    errors = []
    for file in matches:
        try:
            rows[file] = _rows(listing.root / file)
        except DataError as error:
            errors += [error] * (file in matched)
    if not descriptions and not any(rows.get(file) for file in matched):
        return data  # texts of another kind
    if errors:
        raise errors[0]
    numbered, source = _numbered(listing, descriptions)
    keypoints = _keypoints(next(iter(descriptions.values()), {}))
    for file, content in descriptions.items():
        _add_splits(data, file, content)
    data.is_named = bool(numbered)
    if not numbered:
        occurring = {int(row[0]) for file in matched for row in rows[file]}
        numbered = {number: f'class {number}' for number in occurring}
        if names:
            numbered = names.of_values(sorted(occurring))
    data.classes = tuple(name for _, name in sorted(numbered.items()))
    if not keypoints and _may_be_keypoints([row for file in matched for row in rows[file]]):
        data.ambiguous = (
            'the lines may be outlines, or boxes with keypoints: --task masks, or kpt_shape in a data.yaml'
        )

    def read(file: str, size: tuple[int, int]) -> Objects:
        return [_yolo_object(row, place, numbered, size, keypoints, source) for place, row in enumerate(rows[file], 1)]

    _add(data, {file: images for file, images in matches.items() if file in rows}, lambda file: len(rows[file]), read)
    return data


def _add(
    data: CocoData,
    matches: Mapping[str, list[str]],
    count: Callable[[str], int],
    read: Callable[[str, tuple[int, int]], Objects],
) -> None:
    """Add the objects of files that have the names of their images."""
    for file, images in matches.items():
        if not images:
            data.leave_out(NO_IMAGE, count(file))
            data.total += count(file)
            continue
        image, *others = images
        data.images_out |= dict.fromkeys(others, 'the same image in another file')
        size = shown_size(data.listing.root / image)
        try:
            data.add_objects(image, size, read(file, size), file)
        except ValueError as error:
            raise DataError(f'{data.listing.root / file}: {error}') from error


def recognise_voc(listing: Listing, names: Names) -> CocoData:
    """Return the boxes of Pascal VOC's XML files."""
    data = CocoData('masks', VOC, listing)
    roots = {}
    for file in listing.of_suffix('.xml'):
        path = listing.root / file
        try:
            root = ElementTree.parse(path).getroot()
        except (ElementTree.ParseError, LookupError, ValueError) as error:
            raise DataError(f'{path}: no XML ({error})') from error
        if root.tag == 'annotation':
            roots[file] = root

    def read(file: str, size: tuple[int, int]) -> Objects:
        return [_voc_object(one, place) for place, one in enumerate(roots[file].findall('object'), 1)]

    matches = match_images(roots, listing.images)
    for file, images in matches.items():  # the image that the file names comes first
        images.sort(key=lambda image: PurePosixPath(image).name != roots[file].findtext('filename'))
    _add(data, matches, lambda file: len(roots[file].findall('object')), read)
    return data


def _voc_object(node: ElementTree.Element, place: int) -> tuple[str, dict[str, Any]]:
    """Return the class and the fields of an object; the first pixel has the number 1."""
    name, box = (node.findtext('name') or '').strip(), node.find('bndbox')
    try:
        left, top, right, bottom = (float(box.findtext(key)) for key in ('xmin', 'ymin', 'xmax', 'ymax'))
        outlines = [np.array([float(one.text) - 1 for one in part]).reshape(-1, 2) for part in node.findall('polygon')]
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f'object {place} ({name!r}) has no complete <bndbox> of numbers') from error
    if not name or not math.isfinite(left + top + right + bottom):
        raise ValueError(f'object {place} has no <name>, or a place that is not finite')
    difficult = int((node.findtext('difficult') or '0').strip() == '1')
    corners = (min(left, right) - 1, min(top, bottom) - 1, max(left, right), max(top, bottom))
    return name, fields_of(corners, outlines, difficult)


def _rows(file: Path) -> list[list[float]]:
    """Return the class and the places of each line of a text; raise DataError for one that has none."""
    rows = []
    for number, line in enumerate(read_lines(file), 1):
        try:
            row = [float(word) for word in line.split()]
            is_row = len(row) > 4 and all(map(math.isfinite, row)) and row[0] >= 0 and row[0].is_integer()
        except ValueError:
            is_row = False
        if not is_row:
            raise DataError(f'{file}, line {number}: {line[:60]!r} is no class with a box or an outline')
        rows.append(row)
    return rows


def _yolo_object(
    row: Sequence[float], place: int, names: Mapping[int, str], size: tuple[int, int], keypoints: int, source: str
) -> tuple[str, dict[str, Any]]:
    """Return the class and the fields of an object; the places are shares of the image."""
    number, values = int(row[0]), row[1:]
    if number not in names:
        raise ValueError(f'line {place}: the class {number} has no name in {source}')
    if keypoints and len(values) == 4 + keypoints:
        values = values[:4]
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        raise ValueError(
            f'line {place}: {len(values)} values are no box (4) and no outline (6 or more, even); keypoints need '
            'kpt_shape in a data.yaml'
        )
    if not all(-MARGIN <= value <= 1 + MARGIN for value in values):
        raise ValueError(f'line {place}: {max(values, key=abs)} is no share of the image; keypoints need kpt_shape')
    points = np.array(values).reshape(-1, 2) * size
    if len(values) > 4:
        return names[number], fields_of(None, [points])
    return names[number], fields_of([*(points[0] - points[1] / 2).tolist(), *(points[0] + points[1] / 2).tolist()])


def _may_be_keypoints(rows: Sequence[Sequence[float]]) -> bool:
    """Return whether all lines are as long, and each begins with a box in the image that holds its other points."""
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 7:
        return False
    for dimensions in (2, 3):
        if (len(rows[0]) - 5) % dimensions:
            continue
        values = np.array(rows)[:, 1:]
        centre, half = values[:, None, :2], values[:, None, 2:4] / 2
        points = values[:, 4:].reshape(len(rows), -1, dimensions)
        seen = points[..., 2:].all(-1) if dimensions == 3 else np.ones(points.shape[:2], bool)
        inside = (np.abs(points[..., :2] - centre) <= half + MARGIN).all(-1) | ~seen
        if inside.all() and (np.abs(centre - 0.5) + half <= 0.5 + MARGIN).all():
            return True
    return False


def _description(file: Path) -> dict[str, Any] | None:
    """Return what a description of YOLO's data says, all values as texts; None for another file.

    Raises:
        DataError: It cannot be read, or names no classes.
    """
    try:
        content = yaml.load(read_text(file), yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise DataError(f'{file}: no YAML ({" ".join(str(error).split())})') from error
    if not isinstance(content, dict) or not {*content} & {'names', *SPLITS}:
        return None
    if not isinstance(content.get('names'), list | dict) or not content['names']:
        raise DataError(f'{file} has no list of "names" of the classes')
    return content


def _numbered(listing: Listing, descriptions: Mapping[str, Any]) -> tuple[dict[int, str], str]:
    """Return the names of the classes by their numbers, and the file that has them.

    Raises:
        DataError: Two files give them different numbers, or keys that are no numbers.
    """
    lists: dict[str, Any] = {file: content['names'] for file, content in descriptions.items()}
    names, source = listing.class_list()
    lists |= {source: names} if names else {}
    numbered: dict[str, dict[int, str]] = {}
    for file, listed in lists.items():
        pairs = listed.items() if isinstance(listed, dict) else enumerate(listed)
        try:
            numbered[file] = {int(number): str(name) for number, name in pairs}
        except (TypeError, ValueError) as error:
            raise DataError(f'{listing.root / file}: "names" needs numbers as keys ({error})') from error
    for file, other in numbered.items():
        if other != (first := next(iter(numbered.values()))):
            number = min({*first.items()} ^ {*other.items()})[0]
            shown = ' and '.join(f'{one} ({numbered[one].get(number)!r})' for one in (next(iter(numbered)), file))
            raise DataError(f'{listing.root}: the class {number} has different names in {shown}: correct one')
    return next(iter(numbered.values()), {}), next(iter(numbered), '--classes')


def _keypoints(description: Mapping[str, Any]) -> int:
    """Return how many values follow the box of an object."""
    shape = description.get('kpt_shape', ['0'])
    try:
        return math.prod(map(int, shape))
    except (TypeError, ValueError) as error:
        raise DataError(f'kpt_shape {shape!r} is not the number of keypoints, and 2 or 3') from error


def _add_splits(data: CocoData, file: str, description: Mapping[str, Any]) -> None:
    """Take the splits that a description gives folders or lists of images."""
    listing, splits = data.listing, {}
    for key in SPLITS:
        values = description.get(key) or []
        for value in values if isinstance(values, list) else [values]:
            splits.setdefault(SPLITS[key], set()).update(_described(listing, file, description, key, value))
    if splits.get('train') == splits.get('val'):  # as some small public sets have it
        data.notes.append(f'{file} names the same images for train and val')
        splits.pop('val', None)
    for split, images in splits.items():
        data.splits |= dict.fromkeys(images, (split, file))


def _described(listing: Listing, file: str, description: Mapping, key: str, value: str) -> set[str]:
    """Return the images of a folder or a list that a description names, from where its authors meant."""
    folder = listing.root / PurePosixPath(file).parent
    path = Path(description.get('path') or '').expanduser()
    for start in (folder / path, path, folder):
        for name in (value, value.lstrip('./')):
            target = os.path.relpath((start / name).resolve(), listing.root.resolve())
            if target in listing.files:
                return {*listing.read_list(target)}
            images = {image for image in listing.images if target == '.' or image.startswith(f'{target}/')}
            if images:
                return images
    if key == 'test':  # Roboflow names its folder even where it has no images
        return set()
    raise DataError(
        f'{listing.root / file}: {key} is {value!r}, where {listing.root} has no images: correct path or this folder, '
        'or give the folder that holds both'
    )


def recognise_labelme(listing: Listing, names: Names) -> CocoData:
    """Return the objects of LabelMe's JSON files.

    Shapes of one label and one ``group_id`` are one object. Where all are rectangles, the task is
    boxes.
    """
    data = CocoData('masks', LABELME, listing)
    known = {*listing.images}
    files: dict[str, LabelMe] = {}
    for file, content in listing.documents.items():
        if isinstance(content, dict) and {*content} & {'shapes', 'imagePath'}:
            try:
                files[file] = decoded(LabelMe, content, '')
            except UnfitError as error:
                raise DataError(f"{listing.root / file} is not in LabelMe's form: {error}") from error
    kinds = {shape.shape_type for one in files.values() for shape in one.shapes}
    for file, one in files.items():
        try:
            image, size = _image_of(file, one.imagePath, known), (one.imageWidth, one.imageHeight)
            objects = _objects(one.shapes, kinds != {'rectangle'})
            data.add_objects(image, size if all(size) else shown_size(listing.root / image), objects, file)
        except (DataError, ValueError) as error:
            raise DataError(f'{listing.root / file} {error}') from error
    return data


def _image_of(file: str, path: str, known: set[str]) -> str:
    """Return the image that a file names, or one of that name beside it where images have been moved."""
    folder, name = PurePosixPath(file).parent, path.replace('\\', '/')
    for place in (folder / name, folder / PurePosixPath(name).name):
        image = posixpath.normpath(place)
        if image in known:
            return image
    raise ValueError(f'names the image {path!r}, which is not there: put it beside the file')


def _objects(shapes: list[Shape], outlined: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the class and the fields of each object."""
    objects: dict[Any, tuple[str, list[np.ndarray]]] = {}
    difficult = set()
    for place, shape in enumerate(shapes):
        label, kind = str(shape.label), shape.shape_type
        try:
            points = np.array(shape.points, float).reshape(-1, 2)
        except (TypeError, ValueError):
            points = np.zeros((0, 2))
        is_object = kind in POINTS and len(points) >= POINTS[kind] and np.isfinite(points).all()
        if not is_object:
            raise ValueError(
                f'has the shape {place} ({label!r}), a {kind} of {len(points)} points: objects '
                f'are {", ".join(POINTS)}; remove it, or draw it again'
            )
        key = place if shape.group_id is None else (label, str(shape.group_id))
        objects.setdefault(key, (label, []))[1].append(_polygon(kind, points))
        if shape.difficult or shape.flags.get('difficult'):
            difficult.add(key)
    fields = [(label, fields_of(None, polygons, int(key in difficult))) for key, (label, polygons) in objects.items()]
    for _, one in fields if not outlined else ():
        del one['segmentation']
    return fields


def _polygon(kind: str, points: np.ndarray) -> np.ndarray:
    if kind == 'rectangle':  # of two corners, or of four
        (left, top), (right, bottom) = points.min(0), points.max(0)
        return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
    if kind != 'circle':
        return points
    centre, radius = points[0], np.linalg.norm(points[1] - points[0])
    angles = np.arange(CORNERS) * 2 * np.pi / CORNERS
    return centre + radius * np.stack([np.cos(angles), np.sin(angles)], 1)
