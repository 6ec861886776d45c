"""Scenes of handwriting: scanned digits, tinted and turned, on crops of photographs.

Both come with scikit-learn: `load_digits` holds 1,797 scans of 8 x 8 pixels with 17 grey levels (UCI Optical
Recognition of Handwritten Digits), `load_sample_images` two photographs. Training and validation share neither a scan
nor a part of a photograph.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import cv2
import numpy as np

DIGIT_NAMES = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')
PHOTOGRAPHS = ('china', 'flower')
SPLITS = ('train', 'val')
TRAIN_SHARE = 0.8  # of each digit's scans; the rest is for validation
TRAIN_WIDTH = 0.7  # of each photograph, from the left; the rest is for validation
INK_LEVEL = 0.47  # of the enlarged scan's full ink: above it a pixel belongs to the digit
SUPERSAMPLE = 4  # the outline is drawn this much larger, then averaged down
MIN_VISIBLE = 0.8  # share of a digit that later digits must leave visible
MAX_TURN = 18.0  # degrees
PLACEMENT_TRIES = 30


@dataclass
class Digit:
    """One digit of a scene; `mask` is (H, W) bool and holds only what later digits leave visible."""

    label: int
    scan: int
    mask: np.ndarray


@dataclass
class Scene:
    """A picture (H, W, 3) uint8 in BGR order, the digits on it, and the photograph below."""

    image: np.ndarray
    photograph: int
    digits: list[Digit] = field(default_factory=list)


class Scans:
    """The scanned digits of one split, dealt so that classes, and scans within a class, come up equally often.

    Args:
        split: 'train' or 'val'.
        rng: Shuffles the order in which they are dealt.
    """

    def __init__(self, split: str, rng: np.random.Generator) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self.images = (digits.images / 16).astype(np.float32)
        self.rng = rng
        self.of_class = []
        for label in range(len(DIGIT_NAMES)):
            scans = np.flatnonzero(digits.target == label)
            border = round(TRAIN_SHARE * len(scans))
            self.of_class.append(scans[:border] if split == 'train' else scans[border:])

    def deal(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Endless (label, scan number, scan (8, 8) in [0, 1])."""
        decks = [self._shuffled(scans) for scans in self.of_class]
        for label in self._shuffled(np.arange(len(DIGIT_NAMES))):
            scan = next(decks[label])
            yield int(label), int(scan), self.images[scan]

    def _shuffled(self, items: np.ndarray) -> Iterator[int]:
        while True:
            yield from self.rng.permutation(items)


class Backgrounds:
    """Random crops from one split's part of the photographs.

    Args:
        split: 'train' (left part) or 'val' (right part).
        rng: Chooses photograph, place and scale.
        share: Smallest and largest side of a crop, as a share of the largest that fits.
    """

    def __init__(self, split: str, rng: np.random.Generator, share: tuple[float, float] = (0.5, 1.0)) -> None:
        from sklearn.datasets import load_sample_image

        self.rng = rng
        self.share = share
        self.parts = []
        for name in PHOTOGRAPHS:
            photograph = np.ascontiguousarray(load_sample_image(f'{name}.jpg')[..., ::-1])
            border = round(TRAIN_WIDTH * photograph.shape[1])
            self.parts.append(photograph[:, :border] if split == 'train' else photograph[:, border:])

    def crop(self, height: int, width: int) -> tuple[int, np.ndarray]:
        """(index of the photograph, crop (height, width, 3)) from a random place."""
        photograph = int(self.rng.integers(len(self.parts)))
        part = self.parts[photograph]
        largest = min(part.shape[0] / height, part.shape[1] / width)
        scale = largest * self.rng.uniform(*self.share)
        rows, cols = max(1, int(height * scale)), max(1, int(width * scale))
        top = int(self.rng.integers(part.shape[0] - rows + 1))
        left = int(self.rng.integers(part.shape[1] - cols + 1))
        piece = part[top : top + rows, left : left + cols]
        method = cv2.INTER_AREA if scale > 1 else cv2.INTER_LINEAR
        return photograph, cv2.resize(piece, (width, height), interpolation=method)


def draw_outline(scan: np.ndarray, size: int, degrees: float) -> np.ndarray:
    """Enlarges a scan smoothly, cuts it at a level and averages: the share of ink in each pixel.

    Args:
        scan: (8, 8) in [0, 1].
        size: Side in pixels of the enlarged scan before it is turned.
        degrees: Angle, counter-clockwise.

    Returns:
        (h, w) float32 in [0, 1], cropped to the ink.
    """
    side = round(size * 1.5) * SUPERSAMPLE
    zoom = size * SUPERSAMPLE / scan.shape[0]
    centre = (scan.shape[1] - 1) / 2
    matrix = cv2.getRotationMatrix2D((centre, centre), degrees, zoom)
    matrix[:, 2] += (side - 1) / 2 - centre
    large = cv2.warpAffine(scan, matrix, (side, side), flags=cv2.INTER_CUBIC)
    ink = (large > INK_LEVEL).astype(np.float32)
    small = cv2.resize(ink, (side // SUPERSAMPLE, side // SUPERSAMPLE), interpolation=cv2.INTER_AREA)
    rows, cols = np.flatnonzero(small.any(axis=1)), np.flatnonzero(small.any(axis=0))
    return small[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1]


def choose_tint(patch: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The colour, of six random ones, that stands out most in brightness from a (h, w, 3) patch."""
    luma = np.array([0.114, 0.587, 0.299])  # BGR
    tints = rng.integers(0, 256, size=(6, 3)).astype(np.float64)
    contrast = np.abs((tints @ luma)[:, None] - (patch.reshape(-1, 3) @ luma)[None]).mean(axis=1)
    return tints[contrast.argmax()]


def paint(image: np.ndarray, ink: np.ndarray, top: int, left: int, rng: np.random.Generator) -> None:
    """Blends a tinted digit into `image` in place; `ink` is (h, w) in [0, 1]."""
    patch = image[top : top + ink.shape[0], left : left + ink.shape[1]]
    blended = patch + ink[..., None] * (choose_tint(patch, rng) - patch)
    patch[:] = np.clip(np.rint(blended), 0, 255).astype(np.uint8)


def compose(
    scans: Iterator[tuple[int, int, np.ndarray]],
    backgrounds: Backgrounds,
    size: tuple[int, int],
    count: int,
    digit_size: tuple[int, int],
    rng: np.random.Generator,
) -> Scene:
    """A scene with up to `count` digits: a digit for which no place is found within some tries is left out.

    Args:
        scans: What `Scans.deal` gives.
        backgrounds: Where the photographs' crops come from.
        size: (H, W).
        count: Digits to place.
        digit_size: Smallest and largest side in pixels of an enlarged scan.
        rng: Chooses sizes, angles, places and tints.
    """
    photograph, image = backgrounds.crop(*size)
    scene = Scene(image, photograph)
    inked = []  # ink pixels of each digit before occlusion
    for _ in range(count):
        label, scan, pixels = next(scans)
        for _ in range(PLACEMENT_TRIES):
            side = int(rng.integers(digit_size[0], digit_size[1] + 1))
            ink = draw_outline(pixels, side, rng.uniform(-MAX_TURN, MAX_TURN))
            if ink.shape[0] > size[0] or ink.shape[1] > size[1]:
                continue
            top, left = (int(rng.integers(room - need + 1)) for room, need in zip(size, ink.shape))
            mask = np.zeros(size, bool)
            mask[top : top + ink.shape[0], left : left + ink.shape[1]] = ink >= 0.5
            if all((other.mask & ~mask).sum() >= MIN_VISIBLE * full for other, full in zip(scene.digits, inked)):
                break
        else:
            continue
        for other in scene.digits:
            other.mask &= ~mask
        paint(image, ink, top, left, rng)
        scene.digits.append(Digit(label, scan, mask))
        inked.append(int(mask.sum()))
    return scene
