"""LabelMe's annotations, a JSON file for each image, as annotations in COCO's form."""

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from mmlape.errors import DataError
from mmlape.lab.datasets.images import shown_size
from mmlape.new.coco import CocoData, fields_of
from mmlape.new.listing import Listing
from mmlape.new.names import Names

FORM = "LabelMe's form"
CORNERS = 32
"""Of the polygon that stands for a circle."""
LEAST = {'polygon': 3, 'rectangle': 2, 'circle': 2, 'rotation': 4}
"""How many points the shapes that become objects have at least."""


def recognise(listing: Listing, names: Names) -> CocoData:
    """Return the objects of LabelMe's JSON files.

    Shapes of one label and one ``group_id`` are one object. Where all are rectangles, the task is
    boxes.
    """
    data = CocoData('masks', FORM, listing)
    known = {*listing.images}
    files = {
        file: content
        for file, content in listing.documents.items()
        if isinstance(content, dict) and {*content} & {'shapes', 'imagePath'}
    }
    kinds = {one.get('shape_type') for content in files.values() for one in _shapes(content)}
    for file, content in files.items():
        try:
            image = _image_of(file, content, known)
            size = content.get('imageWidth'), content.get('imageHeight')
            objects = _objects(_shapes(content), kinds != {'rectangle'})
            data.add_objects(image, size if all(size) else shown_size(listing.root / image), objects, file)
        except (DataError, ValueError) as error:
            data.unread.append(DataError(f'{listing.root / file} {error}'))
    data.classes = tuple(sorted({label for sample in data.samples for label, _ in sample.annotation[1]}))
    return data


def _shapes(content: Mapping[str, Any]) -> list[dict]:
    shapes = content.get('shapes')
    return [one for one in shapes if isinstance(one, dict)] if isinstance(shapes, list) else []


def _image_of(file: str, content: Mapping[str, Any], known: set[str]) -> str:
    """Return the image that a file names, or one of that name beside it where images have been moved."""
    if not isinstance(content.get('shapes'), list) or 'imagePath' not in content:
        raise ValueError('lacks "shapes" or "imagePath", which LabelMe writes')
    folder, name = PurePosixPath(file).parent, str(content['imagePath']).replace('\\', '/')
    for path in (folder / name, folder / PurePosixPath(name).name):
        image = posixpath.normpath(path)
        if image in known:
            return image
    raise ValueError(f'names the image {content["imagePath"]!r}, which is not there: put it beside the file')


def _objects(shapes: list[dict], outlined: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the class and the fields of each object."""
    objects: dict[Any, tuple[str, list[np.ndarray]]] = {}
    for place, shape in enumerate(shapes):
        label, kind = str(shape.get('label')), str(shape.get('shape_type') or 'polygon')
        try:
            points = np.array(shape['points'], float).reshape(-1, 2)
        except (KeyError, TypeError, ValueError):
            points = np.zeros((0, 2))
        is_object = kind in LEAST and len(points) >= LEAST[kind] and np.isfinite(points).all()
        if not is_object or 'label' not in shape:
            raise ValueError(
                f'has the shape {place} ({label!r}), a {kind} of {len(points)} points: objects '
                f'are {", ".join(LEAST)}; remove it, or draw it again'
            )
        group = shape.get('group_id')
        key = place if group is None else (label, str(group))
        objects.setdefault(key, (label, []))[1].append(_polygon(kind, points))
    fields = [(label, fields_of(None, polygons)) for label, polygons in objects.values()]
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
