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


class SceneWriter:
    """Writes the scenes of one split below ``root`` as COCO and as ADE20K: images at once, annotations at `close`.

    Args:
        root: Receives ``coco/`` and ``ade/``.
        split: 'train' or 'val'.
        categories: COCO's name and supercategory of each class.
        classes: ADE20K's names; its label 0 is unlabelled.
        description: What the scenes show.
    """

    def __init__(
        self, root: Path, split: str, categories: Iterable[tuple[str, str]], classes: Sequence[str], description: str
    ) -> None:
        self.root, self.split = root, split
        self.folder = root / 'coco' / f'{split}2017'
        self.file = root / 'coco' / 'annotations' / f'instances_{split}2017.json'
        self.maps, self.labels = (root / 'ade' / kind / ADE_SPLITS[split] for kind in ('images', 'annotations'))
        for folder in (self.folder, self.file.parent, self.maps, self.labels):
            folder.mkdir(parents=True, exist_ok=True)
        self.categories = [
            dict(id=i + 1, name=name, supercategory=group) for i, (name, group) in enumerate(categories)
        ]
        self.info = dict(description=description)
        self.images, self.annotations, self.captions = [], [], []
        self.palette = [0, 0, 0] + [value for colour in class_palette(len(classes)) for value in colour]
        (root / 'ade' / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes))

    def add(
        self,
        image: np.ndarray,
        things: Sequence[Thing],
        behind: int,
        border: int,
        captions: Iterable[str] = (),
        **about: Any,
    ) -> None:
        """Write an image (H, W, 3) BGR, and record its objects, its captions, and what else is known about it.

        ``behind`` is the class around the objects, which have an unlabelled border of so many pixels.
        """
        from PIL import Image

        number, jpeg, (height, width) = len(self.images) + 1, encode_image(image, '.jpg'), image.shape[:2]
        name = f'{number:012d}.jpg'
        (self.folder / name).write_bytes(jpeg)
        self.images.append(dict(id=number, file_name=name, height=height, width=width, **about))
        for text in captions:
            self.captions.append(dict(id=len(self.captions) + 1, image_id=number, caption=text))
        for thing in things:
            left, top, wide, high = cv2.boundingRect(thing.mask.astype(np.uint8))
            self.annotations.append(
                dict(
                    id=len(self.annotations) + 1,
                    image_id=number,
                    category_id=thing.label + 1,
                    bbox=[left, top, wide, high],
                    area=int(thing.mask.sum()),
                    iscrowd=0,
                    segmentation=encode_polygons(thing.mask),
                    **thing.source,
                )
            )
        stem = f'ADE_{self.split}_{number:08d}'
        (self.maps / f'{stem}.jpg').write_bytes(jpeg)
        label_map = Image.fromarray(draw_labels((height, width), things, behind, border))
        label_map.putpalette(self.palette)
        label_map.save(self.labels / f'{stem}.png')

    def close(self) -> list[dict]:
        """Write COCO's annotation files; return a row for each layout."""
        content = dict(info=self.info, images=self.images, annotations=self.annotations, categories=self.categories)
        self.file.write_text(json.dumps(content))
        if self.captions:
            captions = dict(info=self.info, images=self.images, annotations=self.captions)
            self.file.with_name(self.file.name.replace('instances', 'captions')).write_text(json.dumps(captions))
        counts = dict(images=len(self.images), objects=len(self.annotations))
        return [
            dict(format=layout, split=self.split, path=folder.relative_to(self.root), **counts)
            for layout, folder in (('COCO', self.folder), ('ADE20K', self.maps))
        ]


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
