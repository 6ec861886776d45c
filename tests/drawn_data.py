"""Small data in each form that is read, with a maker for each, drawn so that what a perfect model answers is known.

The objects of an image, and the classes of its pixels, follow from its number: see `scene` and `seen`.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

NAMES = ('cat', 'dog', 'hat')
GROUND = (128, 128, 128)
COLOURS = ((224, 32, 32), (32, 224, 32), (32, 32, 224))  # RGB, one for each class
HUES = np.array([(0, 0, 0), (200, 30, 0), (0, 90, 255)])  # in label maps
SIZES = ((64, 40), (48, 64), (80, 48), (56, 40))  # width and height; no image is square
SPLITS = {'train': range(8), 'val': range(8, 12)}
RANDOM = np.random.default_rng(0)


def scene(number: int) -> tuple[Image.Image, list[tuple[int, int, int, int, int]]]:
    """Draw the image of this number: its objects are (label, x, y, width, height), each an L, so no mask is its box.

    No two images are equal, and by their noise none is a label map.
    """
    width, height = SIZES[number % len(SIZES)]
    pixels = np.full((height, width, 3), GROUND, np.uint8)
    objects = [(number % 3, 2 * (number // 4), 8, 24, 16), ((number + 1) % 3, width - 24, height - 16, 16, 16)]
    for label, x, y, w, h in objects:
        pixels[y : y + h, x : x + w // 2] = COLOURS[label]
        pixels[y + h // 2 : y + h, x : x + w] = COLOURS[label]
    noise = np.random.default_rng(number).integers(-20, 21, pixels.shape)
    return Image.fromarray((pixels + noise).astype(np.uint8)), objects


def seen(pixels: np.ndarray) -> np.ndarray:
    """Return the class of each pixel of an RGB image, -1 for the ground: what a perfect model answers."""
    colours = np.array([*COLOURS, GROUND], int)
    labels = np.abs(pixels[:, :, None].astype(int) - colours).sum(-1).argmin(-1)  # (H, W)
    return np.where(labels == len(COLOURS), -1, labels)


def save(file: Path, image: Image.Image) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file, **dict(quality=100, subsampling=0) if file.suffix == '.jpg' else {})


def picture(file: Path, number: int) -> tuple[int, int]:
    """Write the image of a number, and return its size."""
    image, _ = scene(number)
    save(file, image)
    return image.size


def photo(path: Path, size=(48, 40)) -> None:
    """Write an image of noise, which is of nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path)


def objects_of(number: int) -> list[tuple[int, tuple[int, int, int, int], list[tuple[float, float]]]]:
    """Return the class, (x, y, width, height) and the six corners of each object of an image."""
    objects = []
    for label, x, y, w, h in scene(number)[1]:
        inner = [(x + w / 2, y), (x + w / 2, y + h / 2), (x + w, y + h / 2)]
        objects.append((named(label, number), (x, y, w, h), [(x, y), *inner, (x + w, y + h), (x, y + h)]))
    return objects


def named(label: int, number: int) -> int:
    """Return which of the names a colour has in an image; where there are not three, all of them come up."""
    return (label + 3 * number) % len(NAMES)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


# label maps ----------------------------------------------------------------------------------------------------------


def shown(number: int) -> np.ndarray:
    """Return the class of each pixel (H, W) of an image, -1 for the ground."""
    return seen(np.asarray(scene(number)[0]))


def regions(number: int) -> np.ndarray:
    """Return the class of each pixel (H, W), the ground among the first one."""
    return np.array([named(label, number) for label in range(3)])[shown(number).clip(0)]


def label_map(path: Path, values: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values.astype(np.uint8 if values.max() < 256 else np.uint16), mode)
    if mode == 'P':
        image.putpalette(RANDOM.integers(0, 256, 768).tolist())
    image.save(path)


def maps(
    root: Path,
    images: str = 'images/{:02}.jpg',
    labels: str = 'labels/{:02}.png',
    numbers: Iterable[int] = range(8),
    convert: Callable[[np.ndarray], np.ndarray] = lambda ids: ids,
    mode: str | None = None,
    ids: Callable[[int], np.ndarray] = regions,
) -> Path:
    """Write images and maps of what `convert` makes of their ids; their names count from 0."""
    for place, number in enumerate(numbers):
        picture(root / images.format(place), number)
        label_map(root / labels.format(place), convert(ids(number)), mode)
    return root


def split_maps(root: Path) -> Path:
    for split, numbers in (('train', range(6)), ('valid', range(6, 9))):
        maps(root, f'{split}/images/{split}{{}}.jpg', f'{split}/masks/{split}{{}}.png', numbers)
    return root


def listed_maps(root: Path, names: Iterable[str], convert=lambda ids: ids) -> Path:
    maps(root, convert=convert)
    write_list(root / 'classes.txt', names)
    return root


def cityscapes(root: Path) -> None:
    """Ids of classes, of objects and colours for each image, and outlines that nobody reads."""
    for split, numbers in (('train', range(6)), ('val', range(6, 8)), ('test', range(8, 10))):
        for number in numbers:
            stem = f'{split}/aachen/aachen_{number:06}_000019'
            picture(root / f'leftImg8bit/{stem}_leftImg8bit.png', number)
            ids = regions(number)
            for kind, values in dict(labelIds=ids, instanceIds=1000 * ids, color=HUES[ids]).items():
                label_map(root / f'gtFine/{stem}_gtFine_{kind}.png', values)
            write(root / f'gtFine/{stem}_gtFine_polygons.json', '{"imgHeight": 40, "imgWidth": 48, "objects": []}')


# boxes and outlines --------------------------------------------------------------------------------------------------


def coco(root: Path, file: str, folder: str, numbers: Iterable[int], masks: bool = False, name: str = '{:02}.jpg'):
    images, annotations = [], []
    for place, number in enumerate(numbers):
        width, height = picture(root / folder / name.format(place), number)
        images.append(dict(id=place + 1, file_name=name.format(place), width=width, height=height))
        for label, (x, y, w, h), corners in objects_of(number):
            fields = dict(id=len(annotations) + 1, image_id=place + 1, category_id=label + 1, iscrowd=0)
            outline = dict(segmentation=[np.ravel(corners).tolist()]) if masks else {}
            annotations.append(dict(fields, bbox=[x, y, w, h], area=w * h * (0.75 if masks else 1), **outline))
    categories = [dict(id=label, name=name) for label, name in enumerate(NAMES, 1)]
    write(root / file, json.dumps(dict(images=images, categories=categories, annotations=annotations)))


def roboflow(root: Path, masks: bool = False) -> None:
    for folder, numbers in zip(('train', 'valid'), SPLITS.values()):
        coco(root, f'{folder}/_annotations.coco.json', folder, numbers, masks, f'{folder}_{{:02}}.jpg')


def public_coco(root: Path) -> None:
    for split, numbers in SPLITS.items():
        name = f'{split}_{{:02}}.jpg'
        coco(root, f'annotations/instances_{split}2017.json', f'{split}2017', numbers, True, name)
    write(root / 'annotations/captions_train2017.json', '{"images": [], "annotations": [{"caption": "a"}]}')


def yolo(root: Path, images='images/{split}', labels='labels/{split}', described=True, polygon=False) -> None:
    for split, numbers in SPLITS.items():
        for number in numbers:
            size = picture(root / images.format(split=split) / f'{number:02}.jpg', number)
            rows = []
            for label, (x, y, w, h), corners in objects_of(number):
                values = corners if polygon else [(x + w / 2, y + h / 2), (w, h)]
                rows.append(' '.join(map(str, [label, *(np.array(values) / size).ravel().tolist()])))
            write(root / labels.format(split=split) / f'{number:02}.txt', '\n'.join(rows) + '\n')
    if described:
        train, val = (images.format(split=split) for split in ('train', 'val'))
        names = json.dumps(dict(enumerate(NAMES)))  # which is YAML, too
        write(root / 'data.yaml', f'path: .\ntrain: {train}\nval: {val}\nnames: {names}\n')
    else:
        write_list(root / 'classes.txt', NAMES)


def write_list(file: Path, names: Iterable[str]) -> None:
    write(file, ''.join(f'{name}\n' for name in names))


def voc(root: Path) -> None:
    for split, numbers in SPLITS.items():
        write_list(root / f'ImageSets/Main/{split}.txt', [f'{number:02}' for number in numbers])
        for number in numbers:
            picture(root / f'JPEGImages/{number:02}.jpg', number)
            objects = ''
            for label, (x, y, w, h), _ in objects_of(number):
                ends = dict(xmin=x + 1, ymin=y + 1, xmax=x + w, ymax=y + h)  # Pascal VOC counts pixels from 1
                box = ''.join(f'<{key}>{value}</{key}>' for key, value in ends.items())
                objects += f'<object><name>{escape(NAMES[label])}</name><bndbox>{box}</bndbox></object>'
            write(root / f'Annotations/{number:02}.xml', f'<annotation>{objects}</annotation>')


def labelme(root: Path, rectangles: bool = False) -> None:
    """An L as a polygon and a rectangle of a group, or the box of an object; a rectangle has two or four corners."""
    for split, numbers in SPLITS.items():
        for number in numbers:
            picture(root / split / 'photos' / f'{number:02}.jpg', number)
            shapes = []
            for group, (label, (x, y, w, h), _) in enumerate(objects_of(number)):
                shape = dict(group_id=None if rectangles else group, label=NAMES[label], flags={})
                parts = [(x, y, x + w / 2, y + h), (x + w / 2, y + h / 2, x + w, y + h)]
                for a, b, c, d in [(x, y, x + w, y + h)] if rectangles else parts:
                    kind = 'rectangle' if rectangles or a > x else 'polygon'
                    is_short = kind == 'rectangle' and number % 2
                    points = [[a, b], [c, d]] if is_short else [[a, b], [c, b], [c, d], [a, d]]
                    shapes.append(dict(shape, shape_type=kind, points=points))
            content = dict(version='5.5.0', shapes=shapes, imagePath=f'..\\photos\\{number:02}.jpg', imageData=None)
            write(root / split / 'json' / f'{number:02}.json', json.dumps(content))


# folders of classes --------------------------------------------------------------------------------------------------


def class_folders(root: Path, *splits: str, count: int = 6, name: str = '{1}.jpg') -> None:
    """Write images of each class, which has its colour in the middle of them."""
    for place, split in enumerate(splits or ('',)):
        for label, folder in enumerate(NAMES):
            for number in range(count):
                image = np.array(scene(number + 4 * place)[0])
                image[8:-8, 8:-8] = COLOURS[label % 3]
                save(root / split / folder / name.format(folder, number), Image.fromarray(image))
