"""Annotations in COCO's form, in any layout; other forms of boxes become this one."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mmlape.errors import DataError
from mmlape.files import write_json
from mmlape.new.found import CLASSES, Found, Task, divide, image_sizes, require_enough
from mmlape.new.listing import Listing, list_files, split_of, train_and_val

KEYS = ('images', 'annotations', 'categories')
SAMPLE = 32
"""Images of a file that are looked for."""


@dataclass
class CocoPart:
    """A file of annotations, and the folder that its names of images begin in."""

    file: Path
    folder: Path
    content: dict[str, Any]


@dataclass
class CocoData(Found):
    """Boxes, with or without masks.

    Args:
        parts: By split; ``val`` is None if the data have none.
        converted: Whether the content of the parts is in no file yet.
    """

    parts: dict[str, Any] = field(default_factory=dict)
    converted: bool = False

    def images(self) -> dict[str, int]:
        """Count the images of each split."""
        return {split: len(part.content['images']) for split, part in self.parts.items() if part}

    @property
    def image_folder(self) -> Path:
        """The folder of the images for training."""
        return self.parts['train'].folder

    def prepare(self, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
        """Write the converted files, and a file for each split if the data have one alone."""
        parts = dict(self.parts)
        if parts['val'] is None:
            train = parts['train']
            images = divide(train.content['images'], seed)
            parts = {
                split: CocoPart(folder / f'{split}.json', train.folder, _of(train.content, chosen))
                for split, chosen in zip(('train', 'val'), images)
            }
            _write(parts)
        elif self.converted:
            parts = {
                split: CocoPart(folder / f'{split}.json', part.folder, part.content) for split, part in parts.items()
            }
            _write(parts)
        return {
            split: dict(
                type='CocoDataset',
                ann_file=str(part.file),
                data_prefix=dict(img=f'{part.folder}/'),
                metainfo=dict(classes=CLASSES),
            )
            for split, part in parts.items()
        }


def _write(parts: Mapping[str, CocoPart]) -> None:
    for part in parts.values():
        write_json(part.file, part.content)


def _of(content: dict[str, Any], images: list[dict]) -> dict[str, Any]:
    """Return the content of a file with some of its images alone."""
    ids = {image['id'] for image in images}
    kept = [one for one in content['annotations'] if one.get('image_id') in ids]
    return dict(content, images=images, annotations=kept)


def recognise(listing: Listing) -> CocoData | None:
    """Return the annotations in a folder's JSON files, or None if none of them is in COCO's form.

    Raises:
        DataError: The images of a file are not found, or several files are for the same images.
    """
    files: dict[str | None, list[tuple[str, dict]]] = {}
    for name in listing.of_suffix('.json'):
        content = read(listing.root / name)
        if content is not None:
            files.setdefault(split_of(name), []).append((name, content))
    if not files:
        return None
    chosen = {split: _one(found, listing.root) for split, found in files.items()}
    parts = {}
    for split, one in train_and_val(chosen).items():
        parts[split] = None
        if one is not None:
            name, content = one
            parts[split] = CocoPart(listing.root / name, _image_folder(listing, name, content), content)
    return of_parts(parts, "COCO's form")


def recognise_file(file: Path) -> CocoData:
    """Return the annotations of one file, whose images are below its folder, or beside that.

    Raises:
        DataError: It is not in COCO's form, or its images are not found.
    """
    content = read(file)
    if content is None:
        raise DataError(f"{file} is not in COCO's form: a JSON object with {', '.join(KEYS)} was expected")
    for root in (file.parent, file.parent.parent):
        listing = list_files(root)
        try:
            folder = _image_folder(listing, file.name, content)
        except DataError as error:
            reason = error
        else:
            parts = dict(train=CocoPart(file, folder, content), val=None)
            return of_parts(parts, "COCO's form")
    raise reason


def of_parts(parts: dict[str, CocoPart | None], form: str, converted: bool = False) -> CocoData:
    """Return the data of files in COCO's form, by split."""
    without_area = sum(map(_complete, (part.content for part in parts.values() if part)))
    train = parts['train'].content
    names = {one['id']: str(one['name']) for one in train['categories'] if 'id' in one}
    annotations = train['annotations']
    with_masks = sum(bool(one.get('segmentation')) for one in annotations)
    task: Task = 'masks' if annotations and with_masks > len(annotations) / 2 else 'boxes'
    counts = Counter(dict.fromkeys(names.values(), 0))
    counts.update(names[one['category_id']] for one in annotations if one.get('category_id') in names)
    notes = []
    if without_area:
        notes.append(f'{without_area} objects had no area, and have that of their box')
    if task == 'masks' and with_masks < len(annotations):
        notes.append(f'{len(annotations) - with_masks} of {len(annotations)} objects have no mask')
    if parts['val'] is None:
        require_enough(len(train['images']))
    paths = [parts['train'].folder / str(image.get('file_name')) for image in train['images']]
    return CocoData(
        task,
        form,
        tuple(names.values()),
        counts,
        image_sizes(paths),
        notes,
        max(Counter(one.get('image_id') for one in annotations).values(), default=0),
        parts=parts,
        converted=converted or without_area > 0,
    )


def _complete(content: dict[str, Any]) -> int:
    """Give the area of its box to each object that has none, and return how many these are.

    What is malformed is left to the checks.
    """
    count = 0
    for one in content['annotations']:
        box = one.get('bbox')
        if 'area' in one or not isinstance(box, list) or len(box) != 4:
            continue
        if all(isinstance(value, int | float) for value in box):
            one.update(area=box[2] * box[3], iscrowd=one.get('iscrowd', 0))
            count += 1
    return count


def json_of(file: Path) -> Any:
    """Return what a file holds, or None if it is no JSON."""
    try:
        return json.loads(file.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError):
        return None


def read(file: Path) -> dict[str, Any] | None:
    """Return the content of a file in COCO's form, or None if it is not."""
    content = json_of(file)
    is_coco = isinstance(content, dict) and all(isinstance(content.get(key), list) for key in KEYS)
    if not is_coco or not all(isinstance(one, dict) for key in KEYS for one in content[key]):
        return None
    boxed = any('bbox' in one for one in content['annotations'][:SAMPLE])
    return content if boxed or not content['annotations'] else None


def _one(found: list[tuple[str, dict]], root: Path) -> tuple[str, dict]:
    """Return the one file of a split, 'instances_*.json' of several."""
    if len(found) > 1:
        named = [one for one in found if PurePosixPath(one[0]).name.startswith('instances')]
        found = named or found
    if len(found) > 1:
        names = ', '.join(name for name, _ in found[:6])
        raise DataError(
            f'{root} has several files of annotations for the same images ({names}): name one, as '
            f'in `mmlape new {root / found[0][0]}`'
        )
    return found[0]


def _image_folder(listing: Listing, name: str, content: dict) -> Path:
    """Return the folder from which the images of a file are named.

    Raises:
        DataError: Not all of a sample are below one folder.
    """
    images = content['images']
    step = max(1, len(images) // SAMPLE)
    wanted = [str(image.get('file_name')) for image in images[::step][:SAMPLE]]
    if not wanted:
        raise DataError(f'{listing.root / name} lists no images')
    known = set(listing.files)
    ending = f'/{wanted[0]}'
    starts = [file[: -len(wanted[0])] for file in listing.files if f'/{file}'.endswith(ending)]
    complete = [start for start in starts if all(start + one in known for one in wanted)]
    if not complete:
        raise DataError(
            f'{listing.root / name} lists images such as {wanted[0]!r}, and no folder below '
            f'{listing.root} has all of those: give a folder that holds images and annotations'
        )
    # the one whose path is nearest to the file's words
    split = split_of(name)
    complete.sort(key=lambda start: (split_of(start) != split, len(start)))
    return listing.root / complete[0]
