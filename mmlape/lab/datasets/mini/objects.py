"""Scenes of photographed animals, plants and things, cut out by their own transparency, on crops of photographs.

The objects are the stamps of Tux Paint, as Debian's package `tuxpaint-stamps-default` installs
them; nothing of it is shipped here. A scene has objects of the same size and as many of them on
each 256 x 256 pixels, and a background of the same scale, whatever its canvas is. Training and
validation share no object and no photograph.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
from rich.progress import track

from mmlape.errors import DataError
from mmlape.lab.datasets.mini import scenes
from mmlape.lab.datasets.mini.writers import Scene, SceneOptions, Thing, write_scenes

STAMPS = '/usr/share/tuxpaint/stamps'
INSTALL = 'apt-get install tuxpaint-stamps-default'
FOLDERS = {
    'mammal': ('animals/mammals', 'animals/marsupials'),
    'bird': ('animals/birds',),
    'fish': ('animals/fish',),
    'insect': ('animals/insects',),
    'fruit': ('food/fruit',),
    'vegetable': ('food/vegetables',),
    'flower': ('plants/flowers',),
    'instrument': ('hobbies/music',),
    'tool': ('household/tools',),
    'coin': ('symbols/money',),
}
"""The classes, and where their stamps are."""
GROUPS = {
    'animal': ('mammal', 'bird', 'fish', 'insect'),
    'plant': ('fruit', 'vegetable', 'flower'),
    'thing': ('instrument', 'tool', 'coin'),
}
"""COCO's supercategories."""
CATEGORIES = [(name, group) for group, names in GROUPS.items() for name in names]
CLASSES = (*FOLDERS, 'background')
NO_PHOTOGRAPHS = {'cartoon', 'toys', 'plastic', '00_symbols'}
PHOTOGRAPHS = {'train': ('china', 'coffee', 'brick', 'grass'), 'val': ('rocket', 'gravel')}
"""Those behind the objects, 'china' of scikit-learn, the others of scikit-image; none shows a class."""
DESCRIPTION = 'Stamps of Tux Paint on photographs, made by mmlape'
VAL_EVERY = 4  # of the objects of a class, every fourth is for validation
BORDER = 4  # pixels around an object that are not labelled
CELL = 256  # side of the square for which the number of objects is given
ZOOM = (0.75, 1.25)  # of a photograph behind the objects
GAIN = (0.8, 1.2)  # of an object's light
TINT = (0.95, 1.05)  # and of each of its colours
PLACEMENT_TRIES = 30


@dataclass(frozen=True)
class ObjectOptions(SceneOptions):
    """Options of scenes of objects."""

    stamps: str = STAMPS  # the folder of the stamps
    density: tuple[int, int] = (2, 4)  # fewest and most objects on 256 x 256 pixels
    object_size: tuple[int, int] = (48, 104)  # smallest and largest longer side of an object in pixels

    credits: ClassVar = {
        'objects': 'the stamps of Tux Paint, by Bill Kendrick and others, GPL-2 or later',
        'china': scenes.CREDITS['china'],
        'coffee, brick, grass, rocket, gravel': 'CC0 or public domain, as in scikit-image',
    }

    def rules(self) -> list[tuple[str, bool, str]]:
        """See `SceneOptions.rules`."""
        least, most = self.object_size
        fewest, densest = self.density
        return [
            *super().rules(),
            ('density', 1 <= fewest <= densest, 'must be MIN MAX with 1 <= MIN <= MAX'),
            ('object_size', 12 <= least <= most, 'must be MIN MAX with 12 <= MIN <= MAX'),
            ('object_size', most <= min(self.size), f'must fit into a scene of {self.size}'),
        ]

    def write(self, root: Path) -> list[dict]:
        """See `SceneOptions.write`: `coco/` and `ade/`."""
        rows = []
        found = find_stamps(self.stamps)
        for split, count in (('train', self.train), ('val', self.val)):
            rng = self.generator(f'{split} objects')
            stamps, photographs = sample_stamps(found, split, rng), read_photographs(split)
            drawn = (compose(stamps, photographs, self, rng) for _ in track(range(count), f'{split} scenes'))
            rows += write_scenes(root, split, drawn, CATEGORIES, CLASSES, BORDER, DESCRIPTION)
        return rows


def find_stamps(folder: str | Path) -> list[list[Path]]:
    """Return the photographs of each class, in the order of their names.

    Raises:
        DataError: The folder is missing, or has too few of a class.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f'{folder} does not exist: {INSTALL} puts the stamps into {STAMPS}')
    found = []
    for name, folders in FOLDERS.items():
        paths = [path for part in folders for path in sorted((folder / part).rglob('*.png'))]
        paths = [path for path in paths if _is_photograph(path.relative_to(folder))]
        if len({_object(path) for path in paths}) < VAL_EVERY:
            raise DataError(f'{folder / folders[0]} has too few stamps of the class {name}: {INSTALL} brings them')
        found.append(paths)
    return found


def _is_photograph(path: Path) -> bool:
    return not NO_PHOTOGRAPHS & set(path.parts) and not path.stem.endswith(('_mirror', '_flip'))


def _object(path: Path) -> str:
    """Return what a stamp shows, by the first word of its name: 'pig' of pig.png and of pig_golden2.png."""
    return re.split('[-_]', path.stem.lower())[0]


def divide_stamps(found: list[list[Path]], split: str) -> list[list[Path]]:
    """Return the stamps of each class in a split, 'train' or 'val'."""
    of_class = []
    for paths in found:
        objects = sorted({_object(path) for path in paths})
        held_out = set(objects[VAL_EVERY - 1 :: VAL_EVERY])
        of_class.append([path for path in paths if (_object(path) in held_out) == (split == 'val')])
    return of_class


def sample_stamps(
    found: list[list[Path]], split: str, rng: np.random.Generator
) -> Iterator[tuple[int, str, np.ndarray]]:
    """Yield (label, name, image (H, W, 4) uint8) of a split without end, see `scenes.in_turn`."""
    read = functools.cache(read_stamp)
    for label, path in scenes.in_turn(divide_stamps(found, split), rng):
        yield label, path.stem, read(path)


def read_stamp(path: Path) -> np.ndarray:
    """Read a stamp, cut to where it is opaque: (H, W, 4) uint8, BGR and coverage.

    Raises:
        DataError: It is no image with transparency, or nothing of it is opaque.
    """
    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if image is None or image.ndim != 3 or image.shape[2] != 4 or image.dtype != np.uint8:
        raise DataError(f'{path} is no PNG of 8 bits with transparency: {INSTALL} brings the stamps')
    left, top, wide, high = cv2.boundingRect((image[..., 3] >= 128).astype(np.uint8))
    if not wide:
        raise DataError(f'{path} shows nothing: all of it is transparent')
    return image[top : top + high, left : left + wide]


def read_photographs(split: str) -> list[np.ndarray]:
    """Read the photographs behind the objects of a split."""
    return [scenes.read_photograph(name) for name in PHOTOGRAPHS[split]]


def draw_background(photographs: list[np.ndarray], size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return a random part (H, W, 3) of a photograph at about its own scale, continued by reflection."""
    photograph = photographs[rng.integers(len(photographs))]
    zoom = rng.uniform(*ZOOM)
    method = cv2.INTER_AREA if zoom < 1 else cv2.INTER_LINEAR
    scaled = cv2.resize(photograph, None, fx=zoom, fy=zoom, interpolation=method)
    rows, columns = (
        scenes.reflected(int(rng.integers(2 * have)), wanted, have) for wanted, have in zip(size, scaled.shape)
    )
    return scaled[rows[:, None], columns]


def compose(
    stamps: Iterator[tuple[int, str, np.ndarray]],
    photographs: list[np.ndarray],
    options: ObjectOptions,
    rng: np.random.Generator,
) -> Scene:
    """Compose a scene of objects that do not cover each other; one that finds no place is left out."""
    height, width = options.size
    image = draw_background(photographs, options.size, rng)
    taken, things = np.zeros((height, width), bool), []
    cells = height * width / CELL**2
    least, most = (max(1, round(number * cells)) for number in options.density)
    for _ in range(int(rng.integers(least, most + 1))):
        label, name, stamp = next(stamps)
        colour, cover = draw_stamp(stamp, int(rng.integers(options.object_size[0], options.object_size[1] + 1)), rng)
        rows, columns = cover.shape
        for _ in range(PLACEMENT_TRIES):
            top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
            place = slice(top, top + rows), slice(left, left + columns)
            if not taken[place][cover > 0].any():
                break
        else:
            continue
        patch = image[place].astype(np.float32)
        image[place] = np.rint(patch + cover[..., None] * (colour - patch))
        taken[place] |= cover > 0
        mask = np.zeros((height, width), bool)
        mask[place] = cover >= 0.5
        things.append(Thing(label, mask, dict(stamp=name)))
    return Scene(image, things)


def draw_stamp(stamp: np.ndarray, side: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a stamp with a longer side in pixels, mirrored or not, in a random light.

    Return its colours (h, w, 3) float32 in [0, 255], and its coverage (h, w) float32 in [0, 1].
    """
    if rng.integers(2):
        stamp = stamp[:, ::-1]
    zoom = side / max(stamp.shape[:2])
    size = tuple(max(1, round(length * zoom)) for length in stamp.shape[1::-1])
    method = cv2.INTER_AREA if zoom < 1 else cv2.INTER_LINEAR
    cover = stamp[..., 3:].astype(np.float32) / 255
    # weighted by the coverage: transparent pixels have any colour
    weighted = cv2.resize(stamp[..., :3] * cover, size, interpolation=method)
    cover = cv2.resize(cover, size, interpolation=method)
    gain = rng.uniform(*GAIN) * rng.uniform(*TINT, 3)
    colour = weighted / np.maximum(cover, 1e-3)[..., None] * gain
    return np.clip(colour, 0, 255).astype(np.float32), cover
