"""Writes scenes in the layouts of COCO and ADE20K; what is drawn in them is another module's."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import cv2
import numpy as np

from mmlape.errors import ConfigError
from mmlape.lab.datasets.folders import class_palette

ADE_SPLITS = {'train': 'training', 'val': 'validation'}
JPEG_QUALITY = 95
TRACE_SCALE = 2  # outlines are traced on a mask of this scale, so that they run inside the border pixels
LONGEST = 65500  # side of a JPEG file
Options = TypeVar('Options', bound='SceneOptions')


class Thing(NamedTuple):
    """An object of a scene."""

    label: int
    mask: np.ndarray  # (H, W) bool
    source: Mapping[str, Any]  # which image it is of, for its annotation


class Scene(NamedTuple):
    """An image with objects that do not cover each other."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    things: Sequence[Thing]
    photograph: int = 0  # that is behind them, of those which are classes
    captions: Sequence[str] = ()
    about: Mapping[str, Any] = {}  # what else its record in COCO's layout has


@dataclass(frozen=True)
class SceneOptions:
    """Options of scenes, whatever is drawn in them."""

    train: int = 800  # number of training scenes
    val: int = 100  # number of validation scenes
    size: tuple[int, int] = (256, 256)  # (H, W) of a scene
    seed: int = 0  # the same seed gives the same bytes

    credits: ClassVar[Mapping[str, str]]  # where the images come from

    def __post_init__(self) -> None:
        for name, holds, rule in self.rules():
            if not holds:
                raise ConfigError(f'mini data: option {name} {rule}, not {getattr(self, name)!r}.')

    def rules(self) -> list[tuple[str, bool, str]]:
        """Return (option, whether it holds, the rule) of what is asked of the options."""
        return [
            *((name, getattr(self, name) >= 1, 'must be at least 1') for name in ('train', 'val')),
            ('seed', self.seed >= 0, 'must not be negative'),
            ('size', min(self.size) >= 32, 'must be at least 32 on both sides'),
            ('size', max(self.size) <= LONGEST, f'must be at most {LONGEST} on both sides'),
        ]

    def write(self, root: Path) -> list[dict]:
        """Write the data below ``root``; return a row for each format and split."""
        raise NotImplementedError

    def on_canvas(self: Options, scale: float, **changes: Any) -> Options:
        """Return the options of scenes on a canvas so many times as large, of objects as large and as dense.

        There are as many validation scenes, and a single one for training, which changes nothing in
        them.

        Args:
            scale: Of both sides.
            changes: What a subclass changes with them.

        Raises:
            ConfigError: The canvas is too small for the objects.
        """
        height, width = (round(side * scale) for side in self.size)
        try:
            return replace(self, train=1, size=(height, width), **changes)
        except ConfigError as error:
            raise ConfigError(
                f'a canvas of {height} x {width} pixels cannot be drawn, leave {scale:g} out ({error})'
            ) from error

    def generator(self, purpose: str) -> np.random.Generator:
        """Seed a generator of its own for each split and format.

        More images of one do not change another.
        """
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])


def encode_polygons(mask: np.ndarray) -> list[list[float]]:
    """Encode a (H, W) bool mask as polygons [x1, y1, x2, y2, ...], one for each connected part.

    COCO's polygons have no holes. A hole's outline is spliced into the outline around it, back and
    forth along one line: even-odd filling then leaves the hole open.
    """
    left, top, wide, high = cv2.boundingRect(mask.astype(np.uint8))
    part = mask[top : top + high, left : left + wide].astype(np.uint8)
    large = np.repeat(np.repeat(part, TRACE_SCALE, axis=0), TRACE_SCALE, axis=1)
    outlines, tree = cv2.findContours(large, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    polygons = {i: outlines[i].reshape(-1, 2) for i in range(len(outlines)) if tree[0, i, 3] < 0}
    for hole, (*_, parent) in enumerate(tree[0]):
        if parent >= 0:
            polygons[parent] = _splice(polygons[parent], outlines[hole].reshape(-1, 2))
    return [
        ((points + 0.5) / TRACE_SCALE + (left, top)).ravel().tolist()
        for points in polygons.values()
        if len(points) >= 3
    ]


def _splice(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Join two closed outlines, (N, 2) and (M, 2), at their nearest points into one of N + M + 2 points."""
    gaps = ((outer[:, None] - inner[None]) ** 2).sum(axis=2)
    start, entry = np.unravel_index(gaps.argmin(), gaps.shape)
    loop = np.roll(inner, -entry, axis=0)
    return np.concatenate([outer[: start + 1], loop, loop[:1], outer[start:]])


def write_scenes(
    root: Path,
    split: str,
    scenes: Iterable[Scene],
    categories: Sequence[tuple[str, str]],
    classes: Sequence[str],
    border: int,
    description: str,
) -> list[dict]:
    """Write the scenes of one split below ``root`` as COCO and as ADE20K; return a row for each layout.

    Args:
        root: Receives ``coco/`` and ``ade/``.
        split: 'train' or 'val'.
        scenes: What is drawn.
        categories: COCO's name and supercategory of each class of objects.
        classes: ADE20K's names, of these and of photographs; its label 0 is unlabelled.
        border: Pixels around an object that are not labelled.
        description: What the scenes show.
    """
    from PIL import Image

    photos, annotations = root / 'coco' / f'{split}2017', root / 'coco' / 'annotations'
    maps, labels = (root / 'ade' / kind / ADE_SPLITS[split] for kind in ('images', 'annotations'))
    for folder in (photos, annotations, maps, labels):
        folder.mkdir(parents=True, exist_ok=True)
    records, objects, captions = [], [], []
    palette = [0, 0, 0] + [value for colour in class_palette(len(classes)) for value in colour]
    for number, scene in enumerate(scenes, 1):
        jpeg, (height, width) = encode_image(scene.image, '.jpg'), scene.image.shape[:2]
        name, stem = f'{number:012d}.jpg', f'ADE_{split}_{number:08d}'
        (photos / name).write_bytes(jpeg)
        (maps / f'{stem}.jpg').write_bytes(jpeg)
        records.append(dict(id=number, file_name=name, height=height, width=width, **scene.about))
        for text in scene.captions:
            captions.append(dict(id=len(captions) + 1, image_id=number, caption=text))
        for thing in scene.things:
            fields = dict(
                id=len(objects) + 1,
                image_id=number,
                category_id=thing.label + 1,
                bbox=list(cv2.boundingRect(thing.mask.astype(np.uint8))),
                area=int(thing.mask.sum()),
                iscrowd=0,
                segmentation=encode_polygons(thing.mask),
            )
            objects.append(dict(fields, **thing.source))
        behind = len(categories) + scene.photograph
        label_map = Image.fromarray(draw_labels((height, width), scene.things, behind, border))
        label_map.putpalette(palette)
        label_map.save(labels / f'{stem}.png')
    (root / 'ade' / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes))
    content: dict[str, Any] = dict(info=dict(description=description), images=records)
    if captions:
        (annotations / f'captions_{split}2017.json').write_text(json.dumps(content | dict(annotations=captions)))
    named = [dict(id=number, name=one, supercategory=group) for number, (one, group) in enumerate(categories, 1)]
    content |= dict(annotations=objects, categories=named)
    (annotations / f'instances_{split}2017.json').write_text(json.dumps(content))
    counts = dict(images=len(records), objects=len(objects))
    folders = ('COCO', photos), ('ADE20K', maps)
    return [dict(format=layout, split=split, path=path.relative_to(root), **counts) for layout, path in folders]


def draw_labels(size: tuple[int, int], things: Iterable[Thing], behind: int, border: int) -> np.ndarray:
    """Draw a label map (H, W) uint8: classes from 1 on, and ``behind`` around them.

    A border of so many pixels around each object is 0, unlabelled.
    """
    labels = np.full(size, behind + 1, np.uint8)
    around = np.ones((2 * border + 1, 2 * border + 1), np.uint8)
    for thing in things:
        labels[cv2.dilate(thing.mask.astype(np.uint8), around) > 0] = 0
    for thing in things:
        labels[thing.mask] = thing.label + 1
    return labels


def encode_image(image: np.ndarray, suffix: str) -> bytes:
    """Encode a (H, W, 3) BGR image as ``.jpg`` or ``.png``."""
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if suffix == '.jpg' else []  # OpenCV 5 warns of others' options
    return cv2.imencode(suffix, image, quality)[1].tobytes()
