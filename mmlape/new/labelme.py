"""LabelMe's annotations, a JSON file for each image, as annotations in COCO's form."""

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from mmlape.errors import DataError
from mmlape.new.boxes import common_folder, of_contents
from mmlape.new.coco import CocoData, json_of
from mmlape.new.listing import Listing, split_of, train_and_val

FORM = "LabelMe's form"
CORNERS = 32
"""Of the polygon that stands for a circle."""
LEAST = {'polygon': 3, 'rectangle': 2, 'circle': 2}
"""How many points the shapes that become objects have at least."""


def recognise(listing: Listing) -> CocoData | None:
    """Return the objects of LabelMe's JSON files, or None if there are none.

    Shapes of one label and one ``group_id`` are one object. Where all are rectangles, the task is
    boxes.

    Raises:
        DataError: An image of a file does not exist, or a shape is neither polygon, rectangle nor
            circle.
    """
    folders: dict[str | None, list[tuple[Path, dict]]] = {}
    for name in listing.of_suffix('.json'):
        content = _read(listing.root / name)
        if content is not None:
            folders.setdefault(split_of(name), []).append((listing.root / name, content))
    if not folders:
        return None
    shapes = [shape for files in folders.values() for _, one in files for shape in one['shapes']]
    with_masks = any(shape.get('shape_type') != 'rectangle' for shape in shapes)
    contents = {split: files and _content(files, with_masks) for split, files in train_and_val(folders).items()}
    return of_contents(contents, FORM, None)


def _read(file: Path) -> dict[str, Any] | None:
    """Return the content of a file in LabelMe's form, or None if it is not."""
    content = json_of(file)
    if not isinstance(content, dict) or 'imagePath' not in content:
        return None
    shapes = content.get('shapes')
    is_form = isinstance(shapes, list) and all(isinstance(one, dict) for one in shapes)
    return content if is_form else None


def _content(files: list[tuple[Path, dict]], with_masks: bool) -> tuple[Path, dict[str, Any]]:
    """Return the common folder of the images, and the annotations of files in COCO's form."""
    from PIL import Image

    paths = [_image_of(file, content) for file, content in files]
    root = common_folder([path.parent for path in paths])
    images: list[dict] = []
    annotations: list[dict] = []
    names: dict[str, int] = {}
    for (file, content), path in zip(files, paths):
        try:
            with Image.open(path) as image:
                width, height = image.size
        except (OSError, ValueError) as error:
            raise DataError(f'{path}, the image of {file}, cannot be read: {error}') from error
        images.append(
            dict(id=len(images) + 1, file_name=path.relative_to(root).as_posix(), width=width, height=height)
        )
        for label, polygons in _objects(file, content['shapes']):
            corners = np.concatenate(polygons)
            (left, top), (right, bottom) = corners.min(0), corners.max(0)
            box = [float(value) for value in (left, top, right - left, bottom - top)]
            one = dict(
                id=len(annotations) + 1,
                image_id=len(images),
                category_id=names.setdefault(label, len(names) + 1),
                bbox=box,
                area=float(sum(map(_area, polygons))),
                iscrowd=0,
            )
            if with_masks:
                one['segmentation'] = [polygon.flatten().tolist() for polygon in polygons]
            annotations.append(one)
    categories = [dict(id=number, name=name) for name, number in names.items()]
    return root, dict(images=images, categories=categories, annotations=annotations)


def _image_of(file: Path, content: dict[str, Any]) -> Path:
    """Return the image that a file names, or one of that name beside it where images have been moved."""
    named = PurePosixPath(str(content['imagePath']).replace('\\', '/'))
    for path in (file.parent / named, file.parent / named.name):
        if path.is_file():
            return path
    raise DataError(f'{file} names the image {content["imagePath"]!r}, which is not there: put it beside the file')


def _objects(file: Path, shapes: list[dict]) -> list[tuple[str, list[np.ndarray]]]:
    """Return the label and the polygons, (corners, 2), of each object."""
    objects: dict[Any, tuple[str, list[np.ndarray]]] = {}
    for place, shape in enumerate(shapes):
        label, kind = str(shape.get('label')), str(shape.get('shape_type') or 'polygon')
        try:
            points = np.array(shape['points'], float).reshape(-1, 2)
        except (KeyError, TypeError, ValueError):
            points = np.zeros((0, 2))
        is_object = kind in LEAST and len(points) >= LEAST[kind] and np.isfinite(points).all()
        if not is_object:
            raise DataError(
                f'{file}: shape {place} ({label!r}) is a {kind} of {len(points)} points: objects '
                f'are {", ".join(LEAST)}; remove it, or draw it again'
            )
        group = shape.get('group_id')
        key = place if group is None else (label, str(group))
        objects.setdefault(key, (label, []))[1].append(_polygon(kind, points))
    return list(objects.values())


def _polygon(kind: str, points: np.ndarray) -> np.ndarray:
    if kind == 'polygon':
        return points
    if kind == 'rectangle':
        (left, top), (right, bottom) = points[:2].min(0), points[:2].max(0)
        return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
    centre, radius = points[0], np.linalg.norm(points[1] - points[0])
    angles = np.arange(CORNERS) * 2 * np.pi / CORNERS
    return centre + radius * np.stack([np.cos(angles), np.sin(angles)], 1)


def _area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
