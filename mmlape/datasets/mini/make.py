"""Generates the mini data: small datasets of real handwriting in the formats of COCO, ADE20K and ImageNet.

They are written into a directory beside the target that replaces it when complete, so a killed process leaves no
incomplete dataset. `mini_data.json` in the target lists every file, which makes a later overwrite safe.
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

import numpy as np

import mmlape
from mmlape.datasets.mini import scenes, writers
from mmlape.errors import ConfigError, DataError

MARKER = 'mini_data.json'
MASKS = ('polygon', 'rle')
CREDITS = {
    'digits': 'Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, as in scikit-learn',
    'china': 'danielbuechele, https://www.flickr.com/photos/danielbuechele/6061409035, CC BY 2.0',
    'flower': 'vultilion, https://www.flickr.com/photos/vultilion/6056698931, CC BY 2.0',
}
TRAIN_CROPS_PER_VAL_CROP = 5
VTAB_SETS = ('digits', 'textures', 'counts')


@dataclass(frozen=True)
class MiniOptions:
    """Options of the mini data.

    Args:
        train: Number of training scenes.
        val: Number of validation scenes.
        digits: Number of training crops of a single digit; a fifth as many are for validation.
        size: (H, W) of a scene.
        crop: Side of a single-digit crop, which shows one cell of a scene.
        objects: Fewest and most digits of a scene.
        digit_size: Smallest and largest side, in pixels, of a digit's tile.
        masks: Format of the instance masks, 'polygon' or 'rle'.
        seed: The same seed gives the same bytes.
        vtab: Number of training images of each set of the mini VTAB; a quarter as many are for validation, half as
            many for testing.
    """

    train: int = 800
    val: int = 100
    digits: int = 6000
    size: tuple[int, int] = (256, 256)
    crop: int = 64
    objects: tuple[int, int] = (2, 4)
    digit_size: tuple[int, int] = (96, 104)
    masks: str = 'polygon'
    seed: int = 0
    vtab: int = 0

    def __post_init__(self) -> None:
        shorter = min(self.size)
        rules = [
            ('train', self.train >= 1, 'must be at least 1'),
            ('val', self.val >= 1, 'must be at least 1'),
            ('digits', self.digits >= 0, 'must not be negative'),
            ('vtab', self.vtab >= 0, 'must not be negative'),
            ('size', shorter >= 32, 'must be at least 32 on both sides'),
            ('crop', self.crop >= 16, 'must be at least 16'),
            ('objects', 1 <= self.objects[0] <= self.objects[1], 'must be MIN MAX with 1 <= MIN <= MAX'),
            ('digit_size', 12 <= self.digit_size[0] <= self.digit_size[1], 'must be MIN MAX with 12 <= MIN <= MAX'),
            ('digit_size', self.digit_size[1] <= shorter, f'must fit into a scene of {self.size}'),
            ('masks', self.masks in MASKS, f'must be one of {MASKS}'),
            ('seed', self.seed >= 0, 'must not be negative'),
        ]
        for name, holds, rule in rules:
            if not holds:
                raise ConfigError(f'mini data: option {name} {rule}, not {getattr(self, name)!r}.')


def make_mini_data(root: str | Path, options: MiniOptions | None = None, overwrite: bool = False) -> list[dict]:
    """Generate the mini data below ``root``: `coco/`, `ade/`, `digits/` and, if asked for, `vtab/`.

    Args:
        root: Target directory: missing, empty, or, with ``overwrite``, earlier mini data.
        options: Defaults to `MiniOptions()`.
        overwrite: Replace earlier mini data, in a directory without other files.

    Returns:
        One row for each format and split: format, split, path, images, objects.

    Raises:
        DataError: The target has other content, or cannot be written.
    """
    options = options or MiniOptions()
    root = Path(root)
    _require_target(root, overwrite)
    with _staging_directory(root) as partial:
        rows = _write_scenes(partial, options) + _write_digits(partial, options) + _write_vtab(partial, options)
        marker = dict(made_by='mmlape make-mini-data', version=mmlape.__version__, options=asdict(options))
        files = sorted(path.relative_to(partial).as_posix() for path in partial.rglob('*') if path.is_file())
        marker.update(credits=CREDITS, files=[MARKER, *files])
        (partial / MARKER).write_text(json.dumps(marker, indent=1))
        _publish(partial, root, overwrite)
    return [{**row, 'path': str(root / row['path'])} for row in rows]


def _generator(options: MiniOptions, purpose: str) -> np.random.Generator:
    """Seed a generator of its own for each split and format: more images of one do not change another."""
    return np.random.default_rng([options.seed, zlib.crc32(purpose.encode())])


def _write_scenes(root: Path, options: MiniOptions) -> list[dict]:
    rows = []
    for split, count in (('train', options.train), ('val', options.val)):
        rng = _generator(options, f'{split} scenes')
        scans, backgrounds = scenes.Scans(split, rng).sample(), scenes.Backgrounds(rng)
        coco = writers.CocoWriter(root / 'coco', split, options.masks)
        ade = writers.AdeWriter(root / 'ade', split)
        for _ in _progress(range(count), f'{split} scenes'):
            objects = int(rng.integers(options.objects[0], options.objects[1] + 1))
            scene = scenes.compose(scans, backgrounds, options.size, objects, options.digit_size, rng)
            jpeg = writers.encode_jpeg(scene.image)
            coco.add(scene, jpeg)
            ade.add(scene, jpeg)
        coco.close()
        total = len(coco.annotations)
        rows.append(dict(format='COCO', split=split, path=coco.folder.relative_to(root), images=count, objects=total))
        rows.append(dict(format='ADE20K', split=split, path=ade.images.relative_to(root), images=count, objects=total))
    return rows


def _write_digits(root: Path, options: MiniOptions) -> list[dict]:
    """Write single-digit crops: digit and background have the share of the crop that they have of a scene's cell."""
    if not options.digits:
        return []
    rows = []
    cells = scenes.cells_along(min(options.size), options.digit_size[1])
    zoom = options.crop * cells / min(options.size)
    least, most = (max(1, round(side * zoom)) for side in options.digit_size)
    for split in scenes.SPLITS:
        count = options.digits if split == 'train' else max(1, options.digits // TRAIN_CROPS_PER_VAL_CROP)
        rng = _generator(options, f'{split} digits')
        scans, backgrounds = scenes.Scans(split, rng).sample(), scenes.Backgrounds(rng, (0.5 / cells, 1 / cells))
        folder = root / 'digits' / split
        for name in scenes.DIGIT_NAMES:
            (folder / name).mkdir(parents=True)
        for number in _progress(range(count), f'{split} digits'):
            scene = scenes.compose(scans, backgrounds, (options.crop, options.crop), 1, (least, most), rng)
            digit = scene.digits[0]
            name = f'{number:05d}_scan{digit.scan:04d}.png'
            (folder / scenes.DIGIT_NAMES[digit.label] / name).write_bytes(writers.encode_png(scene.image))
        rows.append(dict(format='ImageNet', split=split, path=folder.relative_to(root), images=count, objects=count))
    return rows


def _write_vtab(root: Path, options: MiniOptions) -> list[dict]:
    """Write three sets with VTAB's lists: which digit, which photograph is behind it, how many digits there are."""
    rows, crop = [], (options.crop, options.crop)
    splits = {'train800': ('train', 1), 'val200': ('train', 4), 'test': ('val', 2)}
    for name in VTAB_SETS if options.vtab else ():
        folder, lines = root / 'vtab' / name, {}
        largest = round(options.crop / scenes.CELL) // (1 if name == 'digits' else 2)
        for split, (scans_of, divisor) in splits.items():
            rng = _generator(options, f'{split} vtab {name}')
            scans, backgrounds = scenes.Scans(scans_of, rng).sample(), scenes.Backgrounds(rng, (0.25, 0.5))
            (folder / 'images' / split).mkdir(parents=True)
            lines[split] = []
            for number in _progress(range(max(1, options.vtab // divisor)), f'{name} {split}'):
                objects = int(rng.integers(1, 5)) if name == 'counts' else 1
                scene = scenes.compose(scans, backgrounds, crop, objects, (largest - 2, largest), rng)
                labels = scene.digits[0].label, scene.photograph, len(scene.digits) - 1
                path = f'images/{split}/{number:05d}.png'
                (folder / path).write_bytes(writers.encode_png(scene.image))
                lines[split].append(f'{path} {labels[VTAB_SETS.index(name)]}')
            total = len(lines[split])
            rows.append(dict(format='VTAB', split=split, path=folder.relative_to(root), images=total, objects=total))
        lines['train800val200'] = lines['train800'] + lines['val200']
        for split, content in lines.items():
            (folder / f'{split}.txt').write_text('\n'.join(content) + '\n')
    return rows


def _progress(items: range, description: str) -> Iterator[int]:
    from rich.progress import track

    return track(items, description=f'{description:<12}')


def _require_target(root: Path, overwrite: bool) -> None:
    """Require an empty target; with ``overwrite``, one with mini data alone."""
    if root.exists() and not root.is_dir():
        raise DataError(f'{root} is a file; mini data needs a directory.')
    if not root.exists() or not any(root.iterdir()):
        return
    if not overwrite:
        raise DataError(f'{root} is not empty. Choose another directory, or replace mini data with --overwrite.')
    marker = root / MARKER
    if not marker.is_file():
        raise DataError(f'{root} has no {MARKER}, so mmlape did not make it and --overwrite does not replace it.')
    try:
        own = set(json.loads(marker.read_text())['files'])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f'{marker} cannot be read ({error!r}). Remove {root} yourself.') from error
    for path in sorted(root.rglob('*')):
        name = path.relative_to(root).as_posix()
        if (path.is_symlink() or not path.is_dir()) and name not in own:
            raise DataError(
                f'{path} was not made by mmlape, so --overwrite does not replace {root}. Move it elsewhere.'
            )


@contextmanager
def _staging_directory(root: Path) -> Iterator[Path]:
    """Yield a new directory beside the target; remove it afterwards, and first those of killed processes."""
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
        raise DataError(f'Cannot write to {parent}: {error.strerror}. Choose another directory.') from error
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
