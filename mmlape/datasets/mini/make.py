"""Generates the mini data: small datasets of real handwriting in the formats of COCO, ADE20K and ImageNet.

They are written into a directory beside the target that replaces it when complete, so a killed
process leaves no incomplete dataset. `mini_data.json` in the target lists every file, which makes a
later overwrite safe.
"""

import json
import os
import platform
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
from rich.progress import track

import mmlape
from mmlape.datasets.mini import scenes
from mmlape.datasets.mini.scenes import DIGIT_NAMES, PHOTOGRAPHS, Scene
from mmlape.datasets.sources import class_palette
from mmlape.errors import ConfigError, DataError
from mmlape.files import parse_json

ADE_CLASSES = DIGIT_NAMES + PHOTOGRAPHS
ADE_SPLITS = {'train': 'training', 'val': 'validation'}
JPEG_QUALITY = 95
BORDER = 1 / 40  # width of the unlabelled border around a digit, in shorter sides of the scene
# outlines are traced on a mask of this scale, so that they run inside the border pixels
TRACE_SCALE = 2
MARKER = 'mini_data.json'
MASKS = ('polygon', 'rle')
CREDITS = {
    'digits': 'Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, as in scikit-learn',
    'china': 'danielbuechele, https://www.flickr.com/photos/danielbuechele/6061409035, CC BY 2.0',
    'flower': 'vultilion, https://www.flickr.com/photos/vultilion/6056698931, CC BY 2.0',
}
TRAIN_CROPS_PER_VAL_CROP = 5
VTAB_SETS = ('digits', 'textures', 'counts')


def encode_rle(mask: np.ndarray) -> dict:
    """Encode a (H, W) bool mask as COCO's compressed run lengths, as text."""
    from pycocotools import mask as coco_mask

    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {'size': [int(side) for side in rle['size']], 'counts': rle['counts'].decode('ascii')}


def encode_polygons(mask: np.ndarray) -> list[list[float]]:
    """Encode a (H, W) bool mask as polygons [x1, y1, x2, y2, ...], one for each connected part.

    COCO's polygons have no holes. A hole's outline is spliced into the outline around it, back and
    forth along one line: even-odd filling then leaves the hole open.
    """
    large = np.repeat(np.repeat(mask.astype(np.uint8), TRACE_SCALE, axis=0), TRACE_SCALE, axis=1)
    outlines, tree = cv2.findContours(large, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    polygons = {i: outlines[i].reshape(-1, 2) for i in range(len(outlines)) if tree[0, i, 3] < 0}
    for hole, (*_, parent) in enumerate(tree[0]):
        if parent >= 0:
            polygons[parent] = _splice(polygons[parent], outlines[hole].reshape(-1, 2))
    return [
        ((points + 0.5) / TRACE_SCALE).ravel().tolist()
        for points in polygons.values()
        if len(points) >= 3
    ]


def _splice(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Join two closed outlines, (N, 2) and (M, 2), at their nearest points into one of N + M + 2 points."""
    gaps = ((outer[:, None] - inner[None]) ** 2).sum(axis=2)
    start, entry = np.unravel_index(gaps.argmin(), gaps.shape)
    loop = np.roll(inner, -entry, axis=0)
    return np.concatenate([outer[: start + 1], loop, loop[:1], outer[start:]])


class CocoWriter:
    """Writes one split below ``root``: images at once.

    Boxes, masks ('polygon' or 'rle') and captions at `close`.
    """

    def __init__(self, root: Path, split: str, masks: str) -> None:
        self.folder = root / f'{split}2017'
        self.file = root / 'annotations' / f'instances_{split}2017.json'
        self.folder.mkdir(parents=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.encode = encode_polygons if masks == 'polygon' else encode_rle
        self.images, self.annotations, self.captions = [], [], []

    def add(self, scene: Scene, jpeg: bytes) -> None:
        """Write the image and record its digits; ``scan`` and ``photograph`` are their sources."""
        number = len(self.images) + 1
        name = f'{number:012d}.jpg'
        (self.folder / name).write_bytes(jpeg)
        height, width = scene.image.shape[:2]
        source = PHOTOGRAPHS[scene.photograph]
        self.images.append(
            dict(id=number, file_name=name, height=height, width=width, photograph=source)
        )
        for text in scenes.describe(scene):
            self.captions.append(dict(id=len(self.captions) + 1, image_id=number, caption=text))
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
        """Write the annotation files, and the vocabulary of the captions."""
        categories = [
            dict(id=i + 1, name=name, supercategory='digit') for i, name in enumerate(DIGIT_NAMES)
        ]
        info = dict(description='Scanned digits on photographs, made by mmlape')
        objects = dict(info=info, images=self.images, annotations=self.annotations)
        self.file.write_text(json.dumps(dict(objects, categories=categories)))
        captions = dict(info=info, images=self.images, annotations=self.captions)
        captions_file = self.file.with_name(self.file.name.replace('instances', 'captions'))
        captions_file.write_text(json.dumps(captions))
        self.file.with_name('vocabulary.txt').write_text('\n'.join(scenes.VOCABULARY) + '\n')


class AdeWriter:
    """Writes one split below ``root``: images, and label maps with a palette.

    Label 0 is unlabelled and lies as a thin border around each digit; digits are 1 to 10, the
    photograph behind them 11 or 12.
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
        colours = [(0, 0, 0), *class_palette(len(ADE_CLASSES))]
        label_map.putpalette([value for colour in colours for value in colour])
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


def encode_image(image: np.ndarray, suffix: str) -> bytes:
    """Encode a (H, W, 3) BGR image as ``.jpg`` or ``.png``."""
    # OpenCV 5 warns of others' options
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if suffix == '.jpg' else []
    return cv2.imencode(suffix, image, quality)[1].tobytes()


@dataclass(frozen=True)
class MiniOptions:
    """Options of the mini data."""

    train: int = 800  # number of training scenes
    val: int = 100  # number of validation scenes
    # number of training crops of a single digit; a fifth as many are for validation
    digits: int = 6000
    size: tuple[int, int] = (256, 256)  # (H, W) of a scene
    crop: int = 64  # side of a single-digit crop, which shows one cell of a scene
    objects: tuple[int, int] = (2, 4)  # fewest and most digits of a scene
    # smallest and largest side, in pixels, of a digit's tile
    digit_size: tuple[int, int] = (96, 104)
    masks: str = 'polygon'  # format of the instance masks, 'polygon' or 'rle'
    seed: int = 0  # the same seed gives the same bytes
    # number of training images of each set of the mini VTAB; a quarter as many are for validation,
    # half as many for testing
    vtab: int = 0

    def __post_init__(self) -> None:
        shorter = min(self.size)
        fewest, most = self.objects
        smallest, largest = self.digit_size
        for name in ('train', 'val'):
            self._require(name, getattr(self, name) >= 1, 'must be at least 1')
        for name in ('digits', 'vtab', 'seed'):
            self._require(name, getattr(self, name) >= 0, 'must not be negative')
        self._require('crop', self.crop >= 16, 'must be at least 16')
        self._require('size', shorter >= 32, 'must be at least 32 on both sides')
        self._require('objects', 1 <= fewest <= most, 'must be MIN MAX with 1 <= MIN <= MAX')
        is_range = 12 <= smallest <= largest
        self._require('digit_size', is_range, 'must be MIN MAX with 12 <= MIN <= MAX')
        self._require('digit_size', largest <= shorter, f'must fit into a scene of {self.size}')
        self._require('masks', self.masks in MASKS, f'must be one of {MASKS}')

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f'mini data: option {name} {rule}, not {getattr(self, name)!r}.')


def make_mini_data(
    root: str | Path,
    options: MiniOptions | None = None,
    overwrite: bool = False,
) -> list[dict]:
    """Generate the mini data below ``root``: `coco/`, `ade/`, `digits/` and, if asked for, `vtab/`.

    The target is missing, empty or, with ``overwrite``, earlier mini data alone. Return a row for
    each format and split: format, split, path, images, objects.

    Raises:
        DataError: The target has other content, or cannot be written.
    """
    options = options or MiniOptions()
    root = Path(root)
    _require_target(root, overwrite)
    with _staging_directory(root) as partial:
        rows = (
            _write_scenes(partial, options)
            + _write_digits(partial, options)
            + _write_vtab(partial, options)
        )
        marker = dict(
            made_by='mmlape make-mini-data', version=mmlape.__version__, options=asdict(options)
        )
        files = sorted(
            path.relative_to(partial).as_posix() for path in partial.rglob('*') if path.is_file()
        )
        marker.update(credits=CREDITS, files=[MARKER, *files])
        (partial / MARKER).write_text(json.dumps(marker, indent=1))
        _publish(partial, root, overwrite)
    return [{**row, 'path': str(root / row['path'])} for row in rows]


def _generator(options: MiniOptions, purpose: str) -> np.random.Generator:
    """Seed a generator of its own for each split and format.

    More images of one do not change another.
    """
    return np.random.default_rng([options.seed, zlib.crc32(purpose.encode())])


def _write_scenes(root: Path, options: MiniOptions) -> list[dict]:
    rows = []
    for split, count in (('train', options.train), ('val', options.val)):
        rng = _generator(options, f'{split} scenes')
        scans, backgrounds = scenes.Scans(split, rng).sample(), scenes.Backgrounds(rng)
        coco = CocoWriter(root / 'coco', split, options.masks)
        ade = AdeWriter(root / 'ade', split)
        for _ in track(range(count), f'{split} scenes'):
            objects = int(rng.integers(options.objects[0], options.objects[1] + 1))
            scene = scenes.compose(
                scans, backgrounds, options.size, objects, options.digit_size, rng
            )
            jpeg = encode_image(scene.image, '.jpg')
            coco.add(scene, jpeg)
            ade.add(scene, jpeg)
        coco.close()
        total = len(coco.annotations)
        rows.append(
            dict(
                format='COCO',
                split=split,
                path=coco.folder.relative_to(root),
                images=count,
                objects=total,
            )
        )
        rows.append(
            dict(
                format='ADE20K',
                split=split,
                path=ade.images.relative_to(root),
                images=count,
                objects=total,
            )
        )
    return rows


def _write_digits(root: Path, options: MiniOptions) -> list[dict]:
    """Write single-digit crops.

    Digit and background have the share of the crop that they have of a scene's cell.
    """
    if not options.digits:
        return []
    rows = []
    cells = scenes.cells_along(min(options.size), options.digit_size[1])
    zoom = options.crop * cells / min(options.size)
    least, most = (max(1, round(side * zoom)) for side in options.digit_size)
    for split in scenes.SPLITS:
        count = options.digits
        if split != 'train':
            count = max(1, options.digits // TRAIN_CROPS_PER_VAL_CROP)
        rng = _generator(options, f'{split} digits')
        scans = scenes.Scans(split, rng).sample()
        backgrounds = scenes.Backgrounds(rng, (0.5 / cells, 1 / cells))
        size = (options.crop, options.crop)
        folder = root / 'digits' / split
        for name in scenes.DIGIT_NAMES:
            (folder / name).mkdir(parents=True)
        for number in track(range(count), f'{split} digits'):
            scene = scenes.compose(scans, backgrounds, size, 1, (least, most), rng)
            digit = scene.digits[0]
            file = folder / DIGIT_NAMES[digit.label] / f'{number:05d}_scan{digit.scan:04d}.png'
            file.write_bytes(encode_image(scene.image, '.png'))
        rows.append(
            dict(
                format='ImageNet',
                split=split,
                path=folder.relative_to(root),
                images=count,
                objects=count,
            )
        )
    return rows


def _write_vtab(root: Path, options: MiniOptions) -> list[dict]:
    """Write three sets with VTAB's lists.

    Their labels are the digit, the photograph behind it, and the number of digits.
    """
    rows, crop = [], (options.crop, options.crop)
    splits = {'train800': ('train', 1), 'val200': ('train', 4), 'test': ('val', 2)}
    for name in VTAB_SETS if options.vtab else ():
        folder, lines = root / 'vtab' / name, {}
        largest = round(options.crop / scenes.CELL) // (1 if name == 'digits' else 2)
        for split, (scans_of, divisor) in splits.items():
            rng = _generator(options, f'{split} vtab {name}')
            scans = scenes.Scans(scans_of, rng).sample()
            backgrounds = scenes.Backgrounds(rng, (0.25, 0.5))
            (folder / 'images' / split).mkdir(parents=True)
            lines[split] = []
            for number in track(range(max(1, options.vtab // divisor)), f'{name} {split}'):
                objects = int(rng.integers(1, 5)) if name == 'counts' else 1
                sides = (largest - 2, largest)
                scene = scenes.compose(scans, backgrounds, crop, objects, sides, rng)
                labels = scene.digits[0].label, scene.photograph, len(scene.digits) - 1
                path = f'images/{split}/{number:05d}.png'
                (folder / path).write_bytes(encode_image(scene.image, '.png'))
                lines[split].append(f'{path} {labels[VTAB_SETS.index(name)]}')
            total = len(lines[split])
            rows.append(
                dict(
                    format='VTAB',
                    split=split,
                    path=folder.relative_to(root),
                    images=total,
                    objects=total,
                )
            )
        lines['train800val200'] = lines['train800'] + lines['val200']
        for split, content in lines.items():
            (folder / f'{split}.txt').write_text('\n'.join(content) + '\n')
    return rows


def _require_target(root: Path, overwrite: bool) -> None:
    """Require an empty target; with ``overwrite``, one with mini data alone."""
    if root.exists() and not root.is_dir():
        raise DataError(f'{root} is a file; mini data needs a directory.')
    if not root.exists() or not any(root.iterdir()):
        return
    if not overwrite:
        raise DataError(
            f'{root} is not empty. Choose another directory, or replace mini data with --overwrite.'
        )
    marker = root / MARKER
    if not marker.is_file():
        raise DataError(
            f'{root} has no {MARKER}, so mmlape did not make it and --overwrite does not replace '
            'it.'
        )
    try:
        own = set(parse_json(marker.read_text())['files'])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f'{marker} cannot be read ({error!r}). Remove {root} yourself.') from error
    for path in sorted(root.rglob('*')):
        name = path.relative_to(root).as_posix()
        if (path.is_symlink() or not path.is_dir()) and name not in own:
            raise DataError(
                f'{path} was not made by mmlape, so --overwrite does not replace {root}. Move it '
                'elsewhere.'
            )


@contextmanager
def _staging_directory(root: Path) -> Iterator[Path]:
    """Yield a new directory beside the target.

    Remove it afterwards, and first those of killed processes.
    """
    prefix = f'.{root.absolute().name}.partial-{platform.node()}-'
    parent = root.absolute().parent
    partial = parent / f'{prefix}{os.getpid()}'
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for leftover in parent.glob(f'{prefix}*'):
            if not _is_running(leftover.name.removeprefix(prefix)):
                shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise DataError(
            f'Cannot write to {parent}: {error.strerror}. Choose another directory.'
        ) from error
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_running(pid: str) -> bool:
    try:
        with suppress(PermissionError):  # of another user's process
            os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    return True


def _publish(partial: Path, root: Path, overwrite: bool) -> None:
    """Move the complete directory to its place, and then remove an earlier one."""
    if not root.is_dir():
        partial.rename(root)
        return
    _require_target(root, overwrite)
    earlier = partial.with_name(f'{partial.name}-earlier')
    root.rename(earlier)
    partial.rename(root)
    shutil.rmtree(earlier)
