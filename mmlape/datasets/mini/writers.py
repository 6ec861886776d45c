"""Writers of scenes in the formats of COCO and ADE20K, and encoders of masks and images."""

import json
from pathlib import Path

import cv2
import numpy as np

from mmlape.datasets.mini.scenes import DIGIT_NAMES, PHOTOGRAPHS, Scene
from mmlape.datasets.palette import class_palette

ADE_CLASSES = DIGIT_NAMES + PHOTOGRAPHS
ADE_SPLITS = {'train': 'training', 'val': 'validation'}
JPEG_QUALITY = 95
BORDER = 1 / 40  # width of the unlabelled border around a digit, in shorter sides of the scene
TRACE_SCALE = 2  # outlines are traced on a mask of this scale, so that they run inside the border pixels


def encode_rle(mask: np.ndarray) -> dict:
    """Encode a (H, W) bool mask as COCO's compressed run lengths, as text."""
    from pycocotools import mask as coco_mask

    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {'size': [int(side) for side in rle['size']], 'counts': rle['counts'].decode('ascii')}


def encode_polygons(mask: np.ndarray) -> list[list[float]]:
    """Encode a (H, W) bool mask as polygons [x1, y1, x2, y2, ...], one for each connected part.

    COCO's polygons have no holes. A hole's outline is spliced into the outline around it, back and forth along one
    line: even-odd filling then leaves the hole open.
    """
    large = np.repeat(np.repeat(mask.astype(np.uint8), TRACE_SCALE, axis=0), TRACE_SCALE, axis=1)
    outlines, tree = cv2.findContours(large, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    polygons = {i: outlines[i].reshape(-1, 2) for i in range(len(outlines)) if tree[0, i, 3] < 0}
    for hole, (*_, parent) in enumerate(tree[0]):
        if parent >= 0:
            polygons[parent] = _splice(polygons[parent], outlines[hole].reshape(-1, 2))
    return [((points + 0.5) / TRACE_SCALE).ravel().tolist() for points in polygons.values() if len(points) >= 3]


def _splice(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Join two closed outlines, (N, 2) and (M, 2), at their nearest points into one of N + M + 2 points."""
    gaps = ((outer[:, None] - inner[None]) ** 2).sum(axis=2)
    start, entry = np.unravel_index(gaps.argmin(), gaps.shape)
    loop = np.roll(inner, -entry, axis=0)
    return np.concatenate([outer[: start + 1], loop, loop[:1], outer[start:]])


class CocoWriter:
    """Writes one split: images at once, annotations at `close`.

    Args:
        root: Directory of the dataset.
        split: 'train' or 'val'.
        masks: 'polygon' or 'rle'.
    """

    def __init__(self, root: Path, split: str, masks: str) -> None:
        self.folder = root / f'{split}2017'
        self.file = root / 'annotations' / f'instances_{split}2017.json'
        self.folder.mkdir(parents=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.encode = encode_polygons if masks == 'polygon' else encode_rle
        self.images, self.annotations = [], []

    def add(self, scene: Scene, jpeg: bytes) -> None:
        """Write the image and record its digits; ``scan`` and ``photograph`` are their sources."""
        number = len(self.images) + 1
        name = f'{number:012d}.jpg'
        (self.folder / name).write_bytes(jpeg)
        height, width = scene.image.shape[:2]
        source = PHOTOGRAPHS[scene.photograph]
        self.images.append(dict(id=number, file_name=name, height=height, width=width, photograph=source))
        for digit in scene.digits:
            left, top, wide, high = cv2.boundingRect(digit.mask.astype(np.uint8))
            self.annotations.append(
                dict(
                    id=len(self.annotations) + 1,
                    image_id=number,
                    category_id=digit.label + 1,
                    bbox=[left, top, wide, high],
                    area=int(digit.mask.sum()),
                    iscrowd=0,
                    segmentation=self.encode(digit.mask),
                    scan=digit.scan,
                )
            )

    def close(self) -> None:
        """Write the annotation file."""
        categories = [dict(id=i + 1, name=name, supercategory='digit') for i, name in enumerate(DIGIT_NAMES)]
        info = dict(description='Scanned digits on photographs, made by mmlape')
        content = dict(info=info, images=self.images, annotations=self.annotations, categories=categories)
        self.file.write_text(json.dumps(content))


class AdeWriter:
    """Writes one split: images, and label maps with a palette.

    Label 0 is unlabelled and lies as a thin border around each digit; digits are 1 to 10, the photograph behind them
    11 or 12.

    Args:
        root: Directory of the dataset.
        split: 'train' or 'val'.
    """

    def __init__(self, root: Path, split: str) -> None:
        self.split, self.count = split, 0
        self.images = root / 'images' / ADE_SPLITS[split]
        self.labels = root / 'annotations' / ADE_SPLITS[split]
        self.images.mkdir(parents=True)
        self.labels.mkdir(parents=True)
        (root / 'classes.txt').write_text(''.join(f'{name}\n' for name in ADE_CLASSES))

    def add(self, scene: Scene, jpeg: bytes) -> None:
        """Write the image and its label map."""
        from PIL import Image

        self.count += 1
        stem = f'ADE_{self.split}_{self.count:08d}'
        (self.images / f'{stem}.jpg').write_bytes(jpeg)
        label_map = Image.fromarray(draw_labels(scene))
        label_map.putpalette([0, 0, 0] + [value for colour in class_palette(len(ADE_CLASSES)) for value in colour])
        label_map.save(self.labels / f'{stem}.png')


def draw_labels(scene: Scene) -> np.ndarray:
    """Draw the scene's label map, (H, W) uint8."""
    size = scene.image.shape[:2]
    labels = np.full(size, len(DIGIT_NAMES) + 1 + scene.photograph, np.uint8)
    border = max(1, round(BORDER * min(size)))
    around = np.ones((2 * border + 1, 2 * border + 1), np.uint8)
    for digit in scene.digits:
        labels[cv2.dilate(digit.mask.astype(np.uint8), around) > 0] = 0
    for digit in scene.digits:
        labels[digit.mask] = digit.label + 1
    return labels


def encode_jpeg(image: np.ndarray) -> bytes:
    """Encode a (H, W, 3) BGR image as JPEG."""
    return cv2.imencode('.jpg', image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes()


def encode_png(image: np.ndarray) -> bytes:
    """Encode a (H, W, 3) BGR image as PNG."""
    return cv2.imencode('.png', image)[1].tobytes()
