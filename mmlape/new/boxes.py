"""YOLO's and Pascal VOC's annotations, which supervision reads, as annotations in COCO's form."""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from mmlape.errors import DataError, StackError
from mmlape.files import parse_yaml
from mmlape.lab.datasets.folders import is_image, read_lines, read_text
from mmlape.new.coco import CocoData, CocoPart, of_parts
from mmlape.new.listing import Listing, split_of, train_and_val

YOLO, VOC = "YOLO's form", "Pascal VOC's form"
NAMES = ('classes.txt', 'obj.names', 'labels.txt')
"""Files that list the classes of bare YOLO folders."""
LOOKED_AT = 8
"""Files whose form is looked at."""


def recognise_yolo(listing: Listing) -> CocoData | None:
    """Return the boxes or masks of YOLO's text files, or None if there are none.

    Raises:
        DataError: A class has no name, the folders of ``data.yaml`` do not exist, or a line is not
            in YOLO's form.
        StackError: supervision is not installed.
    """
    descriptions = [file for file in listing.of_suffix('.yaml', '.yml') if _names(listing.root / file)]
    if descriptions:
        shallowest = min(descriptions, key=lambda file: (file.count('/'), file))
        return recognise_description(listing.root / shallowest)
    folders: dict[str | None, list[tuple[str, str]]] = {}
    for images, labels in _pairs(listing, '.txt', _is_yolo):
        folders.setdefault(split_of(images), []).append((images, labels))
    if not folders:
        return None
    names = _listed_names(listing) or _numbered(listing, folders)
    with tempfile.TemporaryDirectory() as scratch:
        description = Path(scratch) / 'data.yaml'
        description.write_text(f'names: {list(names)!r}\n', encoding='utf-8')
        parts = train_and_val(
            {
                split: [(listing.root / images, listing.root / labels) for images, labels in found]
                for split, found in folders.items()
            }
        )
        return _yolo(parts, description, names)


def recognise_description(file: Path) -> CocoData:
    """Return the data that a ``data.yaml`` describes.

    Raises:
        DataError: It names no classes, or its folders do not exist.
        StackError: supervision is not installed.
    """
    names = _names(file)
    if not names:
        raise DataError(f"{file} is no description of YOLO's data: it has no names of classes")
    values = parse_yaml(read_text(file))
    folders = {}
    for split in ('train', 'val', 'valid', 'test'):
        given = values.get(split)
        if given:
            key = 'val' if split == 'valid' else split
            folders[key] = [_image_folder(file, values, split, str(one)) for one in _list(given)]
    if 'train' not in folders:
        raise DataError(f'{file} names no folder of images for training: add train: FOLDER')
    same = folders.get('val') == folders['train']  # as some small public sets have it
    if same:
        del folders['val']
    parts = train_and_val(
        {split: [(images, _label_folder(images)) for images in found] for split, found in folders.items()}
    )
    data = _yolo(parts, file, names)
    if same:
        data.notes.append(f'{file.name} names the same images for train and val')
    return data


def recognise_voc(listing: Listing) -> CocoData | None:
    """Return the boxes of Pascal VOC's XML files, or None if there are none.

    ``ImageSets/Main/train.txt`` and ``val.txt`` divide them, if they are there.

    Raises:
        DataError: An XML file or its image cannot be read.
        StackError: supervision is not installed.
    """
    folders: dict[str | None, list[tuple[Path, Path]]] = {}
    for images, labels in _pairs(listing, '.xml', _is_voc):
        pair = listing.root / images, listing.root / labels
        folders.setdefault(split_of(images), []).append(pair)
    if not folders:
        return None
    supervision = _supervision(VOC)
    contents = {}
    for split, pairs in train_and_val(folders).items():
        contents[split] = pairs and _content(
            pairs, lambda images, labels: supervision.DetectionDataset.from_pascal_voc(str(images), str(labels))
        )
    sets = _image_sets(listing)
    if contents['val'] is None and sets:
        folder, content = contents['train']
        contents = {split: (folder, _with_images(content, stems)) for split, stems in sets.items()}
    return of_contents(contents, VOC, None)


def _supervision(form: str) -> Any:
    try:
        import supervision
    except ImportError as error:
        raise StackError(f"{form} is read by the package supervision: pip install 'mmlape[formats]'") from error
    return supervision


def _yolo(parts: Mapping[str, list[tuple[Path, Path]] | None], description: Path, names: tuple[str, ...]) -> CocoData:
    supervision = _supervision(YOLO)
    contents = {}
    for split, pairs in parts.items():
        contents[split] = pairs and _content(
            pairs,
            lambda images, labels: supervision.DetectionDataset.from_yolo(str(images), str(labels), str(description)),
        )
    return of_contents(contents, YOLO, names)


def _content(pairs: Iterable[tuple[Path, Path]], read: Callable[[Path, Path], Any]) -> tuple[Path, dict[str, Any]]:
    """Return the common folder of images, and their annotations in COCO's form."""
    pairs = list(pairs)
    root = pairs[0][0] if len(pairs) == 1 else common_folder([images for images, _ in pairs])
    images: list[dict] = []
    annotations: list[dict] = []
    names: dict[str, int] = {}
    for folder, labels in pairs:
        try:
            dataset = read(folder, labels)
        except (ValueError, OSError, SyntaxError, AttributeError) as error:
            raise DataError(f'{labels}: {error}') from error
        for detections in dataset.annotations.values():
            # as a polygon, which is trained on; supervision calls one with holes a crowd
            detections.data['iscrowd'] = np.zeros(len(detections), int)
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / 'annotations.json'
            dataset.as_coco(
                annotations_path=str(file),
                starting_image_id=len(images) + 1,
                starting_annotation_id=len(annotations) + 1,
            )
            content = json.loads(file.read_text(encoding='utf-8'))
        ids = {one['id']: names.setdefault(one['name'], len(names) + 1) for one in content['categories']}
        for image in content['images']:
            name = (folder / image['file_name']).relative_to(root).as_posix()
            images.append(dict(image, file_name=name))
        annotations += [dict(one, category_id=ids[one['category_id']]) for one in content['annotations']]
    categories = [dict(id=number, name=name) for name, number in names.items()]
    return root, dict(images=images, categories=categories, annotations=annotations)


def of_contents(contents: Mapping[str, Any], form: str, names: tuple[str, ...] | None) -> CocoData:
    """Give both splits the same categories, and return the data."""
    found = [one['name'] for part in contents.values() if part for one in part[1]['categories']]
    names = names or tuple(sorted(set(found)))
    parts: dict[str, CocoPart | None] = {}
    for split, part in contents.items():
        parts[split] = None
        if part:
            folder, content = part
            ids = {one['id']: names.index(one['name']) + 1 for one in content['categories']}
            content = dict(
                content,
                categories=[dict(id=place, name=name) for place, name in enumerate(names, 1)],
                annotations=[dict(one, category_id=ids[one['category_id']]) for one in content['annotations']],
            )
            parts[split] = CocoPart(Path(), folder, content)
    return of_parts(parts, form, converted=True)


def _with_images(content: dict[str, Any], stems: set[str]) -> dict[str, Any]:
    images = [one for one in content['images'] if PurePosixPath(one['file_name']).stem in stems]
    ids = {image['id'] for image in images}
    annotations = [one for one in content['annotations'] if one['image_id'] in ids]
    return dict(content, images=images, annotations=annotations)


def _image_sets(listing: Listing) -> dict[str, set[str]] | None:
    """Return the stems of the images of each split that Pascal VOC's lists name."""
    found = {}
    for split in ('train', 'val'):
        ending = f'ImageSets/Main/{split}.txt'
        file = next((file for file in listing.files if file.endswith(ending)), None)
        if file is None:
            return None
        found[split] = {line.split()[0] for line in read_lines(listing.root / file)}
    return found


def _pairs(listing: Listing, suffix: str, is_form: Callable[[Path], bool]) -> Iterable[tuple[str, str]]:
    """Yield the folders of images and of their annotations, whose stems they share."""
    by_stem: dict[str, list[str]] = {}
    for folder, names in listing.by_folder.items():
        stems = {PurePosixPath(name).stem for name in names if is_image(name)}
        if stems:
            by_stem[folder] = sorted(stems)
    for labels, names in listing.by_folder.items():
        files = [name for name in names if name.lower().endswith(suffix) and name not in NAMES]
        stems = {PurePosixPath(name).stem for name in files}
        shared = {folder: len(stems & set(found)) for folder, found in by_stem.items()}
        best = max(shared, key=lambda folder: (shared[folder], _alike(folder, labels)), default=None)
        if best is None or not shared[best]:
            continue
        named = [name for name in files if PurePosixPath(name).stem in set(by_stem[best])]
        if all(is_form(listing.root / labels / name) for name in named[:LOOKED_AT]):
            yield best, labels


def _alike(one: str, other: str) -> int:
    """Count the parts that two paths share."""
    return len(set(PurePosixPath(one).parts) & set(PurePosixPath(other).parts))


def _is_yolo(file: Path) -> bool:
    """Check for lines of a class and at least four numbers."""
    try:
        rows = [line.split() for line in read_lines(file)]
        return all(len(row) >= 5 and row[0].isdigit() and all(map(_is_number, row)) for row in rows)
    except (DataError, OSError):
        return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_voc(file: Path) -> bool:
    try:
        return '<annotation' in read_text(file)[:2000]
    except (DataError, OSError):
        return False


def _names(file: Path) -> tuple[str, ...] | None:
    """Return the classes that a description names, or None if it is none."""
    try:
        values = parse_yaml(read_text(file))
    except Exception:  # of YAML's parser, or no text
        return None
    given = values.get('names') if isinstance(values, dict) else None
    if isinstance(given, dict):
        given = [given[key] for key in sorted(given, key=lambda key: int(key) if str(key).isdigit() else 0)]
    return tuple(map(str, given)) if isinstance(given, list) and given else None


def _listed_names(listing: Listing) -> tuple[str, ...] | None:
    file = next((file for file in listing.files if PurePosixPath(file).name in NAMES), None)
    return tuple(read_lines(listing.root / file)) if file else None


def _numbered(listing: Listing, folders: Mapping) -> tuple[str, ...]:
    """Return names for classes that have none."""
    largest = 0
    for _, labels in (pair for pairs in folders.values() for pair in pairs):
        for name in listing.by_folder[labels]:
            if name.endswith('.txt') and name not in NAMES:
                rows = read_lines(listing.root / labels / name)
                largest = max([largest, *(int(row.split()[0]) for row in rows)])
    return tuple(f'class {number}' for number in range(largest + 1))


def _list(given: Any) -> list:
    return given if isinstance(given, list) else [given]


def _image_folder(file: Path, values: Mapping, split: str, given: str) -> Path:
    """Return a folder of images that a description names, from where its authors meant."""
    root = Path(str(values.get('path') or '')).expanduser()
    starts = (file.parent / root, root, file.parent, file.parent.parent)
    for start in starts:
        for name in (given, given.lstrip('./')):
            folder = start / name
            if folder.is_dir():
                inner = folder / 'images'
                return inner if inner.is_dir() else folder
            if folder.is_file():
                raise DataError(
                    f'{file}: {split} is a list of images ({given}): give folders, or one that '
                    'holds images/ and labels/'
                )
    raise DataError(
        f'{file}: {split} is {given!r}, which does not exist below {starts[0]} or {file.parent}: '
        'correct path or this folder'
    )


def _label_folder(images: Path) -> Path:
    """Return the folder of the text files: 'labels' for the last 'images' of the path, or beside the images."""
    parts = list(images.parts)
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] == 'images':
            labels = Path(*parts[:place], 'labels', *parts[place + 1 :])
            if labels.is_dir():
                return labels
    return images


def common_folder(folders: list[Path]) -> Path:
    """Return the folder that is or holds each of some."""
    first = folders[0]
    for parent in (first, *first.parents):
        if all(folder == parent or parent in folder.parents for folder in folders):
            return parent
    return Path()
