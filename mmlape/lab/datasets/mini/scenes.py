"""Scenes of handwriting: scanned digits on tiles, tinted and rotated, on crops of photographs.

Both come with scikit-learn: `load_digits` holds 1,797 scans of 8 x 8 pixels with 17 grey levels
(UCI Optical Recognition of Handwritten Digits), `load_sample_images` two photographs. Training and
validation share no scan.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import cv2
import numpy as np

from mmlape.lab.datasets.mini.writers import Scene, Thing

DIGIT_NAMES = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')
PHOTOGRAPHS = ('china', 'flower')
CREDITS = {
    'china': 'danielbuechele, https://www.flickr.com/photos/danielbuechele/6061409035, CC BY 2.0',
    'flower': 'vultilion, https://www.flickr.com/photos/vultilion/6056698931, CC BY 2.0',
}
SHOWN = ('a temple', 'a flower')  # what the photographs show, for captions
SPLITS = ('train', 'val')
VAL_EVERY = 5  # of each digit's scans, every fifth is for validation
INK_RANGE = (0.2, 0.7)  # of the enlarged scan's full ink: no ink below, full ink above
# pixels of a tile at least as it is drawn, at twice its size or more; then averaged down
DRAWN_SIDE = 100
CELL = 1.14  # side of a scene's cells, in largest tiles; a cell holds at most one
# largest distance of a tile from its cell's centre, in sides: a model has few positions to learn
OFFSET = 0.08
MAX_ROTATION = 8.0  # degrees
DARK = (10, 60)  # range of each channel of a tile, without the upper end
LIGHT = (180, 256)  # and of a digit
PLACEMENT_TRIES = 30
T = TypeVar('T')
RELATIONS = (('left of', 'right of'), ('above', 'below'))  # along the columns and the rows
VOCABULARY = (
    '[PAD]', '[UNK]', '[CLS]', *DIGIT_NAMES, 'a', 'an', 'temple', 'flower', 'photograph', 'of', 'on', 'and', ',',
    'left', 'right', 'above', 'below',
)  # fmt: skip
"""Of the captions, as a vocabulary of BERT's form."""


def in_turn(of_class: Sequence[Sequence[T]], rng: np.random.Generator) -> Iterator[tuple[int, T]]:
    """Yield (label, item) without end, in a random order, classes and the items of a class equally often."""

    def shuffled(items: Sequence) -> Iterator:
        while True:
            for place in rng.permutation(len(items)):
                yield items[place]

    orders = [shuffled(items) for items in of_class]
    for label in shuffled(range(len(of_class))):
        yield label, next(orders[label])


@functools.cache
def read_scans() -> tuple[np.ndarray, np.ndarray]:
    """Return the digit of each scan, and the scans (N, 8, 8) in [0, 1]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.target, (digits.images / 16).astype(np.float32)


def divide_scans(split: str) -> list[np.ndarray]:
    """Return the numbers of the scans of each digit in a split, 'train' or 'val'."""
    (labels, _), of_class = read_scans(), []
    for label in range(len(DIGIT_NAMES)):
        scans = np.flatnonzero(labels == label)
        held_out = np.arange(len(scans)) % VAL_EVERY == VAL_EVERY - 1
        of_class.append(scans[held_out == (split == 'val')])
    return of_class


def sample_scans(split: str, rng: np.random.Generator) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (label, scan number, scan (8, 8) in [0, 1]) of a split without end, see `in_turn`."""
    _, images = read_scans()
    for label, scan in in_turn(divide_scans(split), rng):
        yield label, int(scan), images[scan]


@functools.cache
def read_photograph(name: str) -> np.ndarray:
    """Read a photograph of scikit-learn or scikit-image: (H, W, 3) uint8, BGR."""
    if name in PHOTOGRAPHS:
        import sklearn.datasets

        image = sklearn.datasets.load_sample_image(f'{name}.jpg')
    else:
        import skimage.data

        image = getattr(skimage.data, name)()
    if image.ndim == 2:
        image = np.stack([image] * 3, axis=-1)
    return np.ascontiguousarray(image[..., ::-1])


def draw_background(
    size: tuple[int, int], rng: np.random.Generator, share: tuple[float, float], drawn_for: tuple[int, int] | None
) -> tuple[int, np.ndarray]:
    """Return the index of a photograph, and a crop (H, W, 3) from a random position.

    Args:
        size: (H, W).
        rng: Chooses photograph, share and position.
        share: The smallest and the largest side of the crop, of the largest that fits.
        drawn_for: (H, W) of the canvas on which crops have these shares; those for others are at its
            scale, and continued by reflection where the photograph ends. None for the size.
    """
    photograph = int(rng.integers(len(PHOTOGRAPHS)))
    part = read_photograph(PHOTOGRAPHS[photograph])
    largest = min(have / side for have, side in zip(part.shape, drawn_for or size))
    scale = largest * rng.uniform(*share)
    places = []
    for side, have in zip(size, part.shape):
        wanted = max(1, int(side * scale))
        starts = have - wanted + 1 if wanted <= have else 2 * have
        places.append(reflected(int(rng.integers(starts)), wanted, have))
    piece = part[places[0][:, None], places[1]]
    method = cv2.INTER_AREA if scale > 1 else cv2.INTER_LINEAR
    return photograph, cv2.resize(piece, size[::-1], interpolation=method)


def reflected(start: int, wanted: int, have: int) -> np.ndarray:
    """Return ``wanted`` indices of ``have`` rows from ``start`` on, there and back."""
    steps = (start + np.arange(wanted)) % (2 * have)
    return np.minimum(steps, 2 * have - 1 - steps)


def draw_tile(scan: np.ndarray, size: int, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw a square tile of a side in pixels, rotated counter-clockwise, and on it a scan (8, 8), smoothly enlarged.

    Return tile and ink, (h, w) float32 in [0, 1]: the share of each pixel that they cover.
    """
    factor = max(2, round(DRAWN_SIDE / size))
    side = round(size * 1.5) * factor
    zoom = size * factor / scan.shape[0]
    centre = (scan.shape[1] - 1) / 2
    matrix = cv2.getRotationMatrix2D((centre, centre), degrees, zoom)
    matrix[:, 2] += (side - 1) / 2 - centre
    large = cv2.warpAffine(scan, matrix, (side, side), flags=cv2.INTER_CUBIC)
    middle = (side - 1) / 2
    corners = cv2.boxPoints(((middle, middle), (size * factor,) * 2, -degrees))
    square = cv2.fillConvexPoly(np.zeros((side, side), np.float32), np.rint(corners).astype(np.int32), 1)
    ink = np.clip((large - INK_RANGE[0]) / (INK_RANGE[1] - INK_RANGE[0]), 0, 1) * square
    small = (side // factor, side // factor)
    tile, ink = (cv2.resize(layer, small, interpolation=cv2.INTER_AREA) for layer in (square, ink))
    rows, cols = np.flatnonzero(tile.any(axis=1)), np.flatnonzero(tile.any(axis=0))
    inside = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
    return tile[inside], ink[inside]


def paint(image: np.ndarray, tile: np.ndarray, ink: np.ndarray, top: int, left: int, rng: np.random.Generator) -> None:
    """Blend a dark tile and a light digit, each in a random tint, into ``image``, in place."""
    patch = image[top : top + tile.shape[0], left : left + tile.shape[1]]
    blended = patch.astype(np.float64)
    for cover, tints in ((tile, DARK), (ink, LIGHT)):
        blended += cover[..., None] * (rng.integers(*tints, size=3) - blended)
    patch[:] = np.clip(np.rint(blended), 0, 255).astype(np.uint8)


def cells_along(side: int, largest: int) -> int:
    """Return how many cells lie along a side of a scene whose largest tiles have a side of ``largest`` pixels."""
    return max(1, round(side / (CELL * largest)))


def smallest_fit(side: int, cells: int) -> int:
    """Return the largest side of an upright tile, with its blurred edges, that fits into one of ``cells`` in a row."""
    return side // cells - 2


def draw(
    split: str,
    rng: np.random.Generator,
    size: tuple[int, int],
    counts: tuple[int, int],
    sides: tuple[int, int],
    share: tuple[float, float],
    drawn_for: tuple[int, int] | None = None,
    grid: tuple[int, int] | None = None,
) -> Iterator[Scene]:
    """Yield scenes (H, W) without end, of the scans of a split.

    Args:
        split: 'train' or 'val'.
        rng: Decides all of them.
        size: (H, W).
        counts: Fewest and most digits, where there are as many cells.
        sides: Smallest and largest of a digit's tile.
        share: Of the photograph, see `draw_background`.
        drawn_for: See there.
        grid: Rows and columns of cells; by default those of `cells_along`.
    """
    scans = sample_scans(split, rng)
    while True:
        count = int(rng.integers(counts[0], counts[1] + 1))
        photograph, image = draw_background(size, rng, share, drawn_for)
        cells = grid or tuple(cells_along(side, sides[1]) for side in size)
        yield Scene(image, put_digits(image, scans, count, sides, rng, *cells), photograph)


def put_digits(
    image: np.ndarray,
    scans: Iterator[tuple[int, int, np.ndarray]],
    count: int,
    digit_size: tuple[int, int],
    rng: np.random.Generator,
    rows: int,
    columns: int,
) -> list[Thing]:
    """Paint digits into an image (H, W, 3), in place, each in a cell of its own, and return them."""
    size = image.shape[:2]
    digits = []
    cells = rng.permutation(rows * columns)[:count]
    for cell in cells:
        label, scan, pixels = next(scans)
        cell_size = [side / number for side, number in zip(size, (rows, columns))]
        for tries_left in reversed(range(PLACEMENT_TRIES)):
            side, degrees = digit_size[0], 0.0  # at last, which `smallest_fit` lets fit
            if tries_left:
                side = int(rng.integers(digit_size[0], digit_size[1] + 1))
                degrees = rng.uniform(-MAX_ROTATION, MAX_ROTATION)
            tile, ink = draw_tile(pixels, side, degrees)
            slack = [math.floor(have - need) for have, need in zip(cell_size, tile.shape)]
            if min(slack) >= 0:
                break
        corner = [int(index * have) for index, have in zip(divmod(int(cell), columns), cell_size)]
        offsets = rng.uniform(-OFFSET, OFFSET, 2) * side
        top, left = (
            start + int(np.clip(free / 2 + offset, 0, free)) for start, free, offset in zip(corner, slack, offsets)
        )
        mask = np.zeros(size, bool)
        mask[top : top + tile.shape[0], left : left + tile.shape[1]] = tile >= 0.5
        paint(image, tile, ink, top, left, rng)
        digits.append(Thing(label, mask, dict(scan=scan)))
    return digits


def describe(scene: Scene) -> list[str]:
    """Describe a scene in captions: of each digit alone, of each pair of neighbours in the list, and of all digits.

    'a three above a seven on a photograph of a flower'
    """
    names = [_with_article(DIGIT_NAMES[digit.label]) for digit in scene.things]
    centres = [np.argwhere(digit.mask).mean(axis=0)[::-1] for digit in scene.things]  # x, y
    phrases = list(names)
    for first in range(len(names) - 1):
        offset = centres[first + 1] - centres[first]
        axis = int(abs(offset).argmax())
        relation = RELATIONS[axis][int(offset[axis] < 0)]
        phrases.append(f'{names[first]} {relation} {names[first + 1]}')
    if len(names) > 2:
        phrases.append(f'{", ".join(names[:-1])} and {names[-1]}')
    return [f'{phrase} on a photograph of {SHOWN[scene.photograph]}' for phrase in phrases]


def _with_article(name: str) -> str:
    return f'{"an" if name[0] in "aeiou" and name != "one" else "a"} {name}'
