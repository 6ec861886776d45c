"""Generates the mini data: small datasets of real handwriting in the formats of COCO, ADE20K and ImageNet.

They are written into a directory beside the target that replaces it when complete, so a killed
process leaves no incomplete dataset, but that directory, `.NAME.partial-*`. `mini_data.json` in the
target lists every file, which makes a later overwrite safe.
"""

import json
import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.progress import track

import mmlape
from mmlape.errors import DataError
from mmlape.files import naming
from mmlape.lab.datasets.mini import scenes
from mmlape.lab.datasets.mini.objects import ObjectOptions
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES, PHOTOGRAPHS
from mmlape.lab.datasets.mini.writers import SceneOptions, encode_image, write_scenes

ADE_CLASSES = DIGIT_NAMES + PHOTOGRAPHS
MARKER = 'mini_data.json'
BORDER = 1 / 40  # width of the unlabelled border around a digit, in shorter sides of the scene
CREDITS = {
    'digits': 'Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, as in scikit-learn',
    **scenes.CREDITS,
}
TRAIN_CROPS_PER_VAL_CROP = 5
VTAB_SETS = ('digits', 'textures', 'counts')


@dataclass(frozen=True)
class MiniOptions(SceneOptions):
    """Options of the mini data."""

    digits: int = 6000  # number of training crops of a single digit, 0 or 10 and more; a fifth for validation
    crop: int = 64  # side of a single-digit crop, which shows one cell of a scene
    per_scene: tuple[int, int] = (2, 4)  # fewest and most digits of a scene
    digit_size: tuple[int, int] = (96, 104)  # smallest and largest side, in pixels, of a digit's tile
    # (H, W) of the scenes whose cells, borders and backgrounds, and whose number of digits by area,
    # scenes of another size have; None for those of this size
    drawn_for: tuple[int, int] | None = None
    # number of training images of each set of the mini VTAB; a quarter as many are for validation,
    # half as many for testing
    vtab: int = 0

    credits: ClassVar = CREDITS

    def rules(self) -> list[tuple[str, bool, str]]:
        """See `SceneOptions.rules`."""
        fewest, most = self.per_scene
        smallest, largest = self.digit_size
        fits = min(map(scenes.smallest_fit, self.size, self.grid))
        least = len(DIGIT_NAMES)  # one of each class
        return [
            *super().rules(),
            ('digits', self.digits == 0 or self.digits >= least, f'must be 0, or {least} and more'),
            ('vtab', self.vtab >= 0, 'must not be negative'),
            ('crop', self.crop >= 16, 'must be at least 16'),
            ('per_scene', 1 <= fewest <= most, 'must be MIN MAX with 1 <= MIN <= MAX'),
            ('digit_size', 12 <= smallest <= largest, 'must be MIN MAX with 12 <= MIN <= MAX'),
            ('digit_size', largest <= min(self.size), f'must fit into a scene of {self.size}'),
            (
                'digit_size',
                smallest <= fits,
                f'must be MIN MAX with a MIN of at most {fits}, so that digits find room',
            ),
            (
                'drawn_for',
                self.drawn_for is None or largest <= min(self.drawn_for),
                f'must be a size into which a digit of {largest} fits',
            ),
        ]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the cells of a scene."""
        height, width = map(self._cells, self.size, self.reference)
        return height, width

    @property
    def scene_digits(self) -> tuple[int, int]:
        """Fewest and most digits of a scene: as many a cell as in scenes of ``drawn_for``."""
        rows, columns = (self._cells(side, side) for side in self.reference)
        share = math.prod(self.grid) / (rows * columns)
        fewest, most = (max(1, round(number * share)) for number in self.per_scene)
        return fewest, most

    @property
    def reference(self) -> tuple[int, int]:
        """(H, W) of the scenes whose cells, borders and backgrounds these have."""
        return self.drawn_for or self.size

    def _cells(self, side: int, full_side: int) -> int:
        """Return how many cells lie along a side if they are those of a side ``full_side``."""
        largest = max(1, self.digit_size[1])  # also before they are checked
        return max(1, side * scenes.cells_along(full_side, largest) // max(1, full_side))

    def on_canvas(self, scale: float, **changes: Any) -> 'MiniOptions':
        """See `SceneOptions.on_canvas`."""
        return super().on_canvas(scale, digits=0, vtab=0, drawn_for=self.reference, **changes)

    def write(self, root: Path) -> list[dict]:
        """See `SceneOptions.write`: `coco/`, `ade/`, `digits/` and, if asked for, `vtab/`."""
        return _write_scenes(root, self) + _write_digits(root, self) + _write_vtab(root, self)


def make_mini_data(root: str | Path, options: SceneOptions | None = None, overwrite: bool = False) -> list[dict]:
    """Generate the mini data below ``root``: digits, or what else the options are of.

    The target is missing, empty or, with ``overwrite``, earlier mini data alone. Return a row for
    each format and split: format, split, path, images, objects.

    Raises:
        DataError: The target has other content.
        OSError: It cannot be written.
    """
    options = options or MiniOptions()
    root = Path(root)
    _require_target(root, overwrite)
    target = root.resolve()  # a link stays
    if Path.cwd().is_relative_to(target):
        raise DataError(f'{root} holds the current directory, and is replaced: call it from elsewhere')
    with naming(root):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f'.{target.name}.partial-', dir=target.parent) as folder:
            partial = Path(folder, 'complete')
            partial.mkdir()
            rows = options.write(partial)
            marker = dict(made_by='mmlape make-mini-data', version=mmlape.__version__, options=asdict(options))
            files = sorted(path.relative_to(partial).as_posix() for path in partial.rglob('*') if path.is_file())
            marker.update(credits=options.credits, files=[MARKER, *files])
            (partial / MARKER).write_text(json.dumps(marker, indent=1))
            if target.is_dir():
                _require_target(root, overwrite)
                earlier = target.rename(Path(folder, 'earlier'))
                try:
                    partial.rename(target)
                except BaseException:
                    earlier.rename(target)
                    raise
            else:
                partial.rename(target)
    return [{**row, 'path': str(root / row['path'])} for row in rows]


def read_options(root: str | Path) -> SceneOptions:
    """Return the options with which `make_mini_data` made the data below ``root``.

    Raises:
        DataError: It records none that this version knows.
    """
    file = Path(root) / MARKER
    if not file.is_file():
        raise DataError(f'{root} has no {MARKER}, so it is no mini data whose scenes can be drawn again')
    try:
        given = json.loads(file.read_text())['options']
        given.pop('masks', None)  # of versions that could write run lengths, too
        options_class: type[SceneOptions] = ObjectOptions if 'stamps' in given else MiniOptions
        values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}
        return options_class(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f'{file} does not say how the data was made ({error}): make it again with --overwrite'
        ) from error


def _write_scenes(root: Path, options: MiniOptions) -> list[dict]:
    rows = []
    categories = [(name, 'digit') for name in DIGIT_NAMES]
    border = max(1, round(BORDER * min(options.reference)))
    description = 'Scanned digits on photographs, made by mmlape'
    scale = dict(drawn_for=options.drawn_for, grid=options.grid)
    for split, count in (('train', options.train), ('val', options.val)):
        rng = options.generator(f'{split} scenes')
        drawn = scenes.draw(split, rng, options.size, options.scene_digits, options.digit_size, (0.5, 1.0), **scale)
        described = (
            scene._replace(captions=scenes.describe(scene), about=dict(photograph=PHOTOGRAPHS[scene.photograph]))
            for _, scene in zip(track(range(count), f'{split} scenes'), drawn)
        )
        rows += write_scenes(root, split, described, categories, ADE_CLASSES, border, description)
    (root / 'coco' / 'annotations' / 'vocabulary.txt').write_text('\n'.join(scenes.VOCABULARY) + '\n')
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
    least = min(least, scenes.smallest_fit(options.crop, scenes.cells_along(options.crop, most)))
    for split in scenes.SPLITS:
        count = options.digits
        if split != 'train':
            count = max(len(DIGIT_NAMES), options.digits // TRAIN_CROPS_PER_VAL_CROP)
        folder = root / 'digits' / split
        rng = options.generator(f'{split} digits')
        for name in scenes.DIGIT_NAMES:
            (folder / name).mkdir(parents=True)
        size = (options.crop, options.crop)
        drawn = scenes.draw(split, rng, size, (1, 1), (least, most), (0.5 / cells, 1 / cells))
        for number, scene in zip(track(range(count), f'{split} digits'), drawn):
            (digit,) = scene.things
            file = folder / DIGIT_NAMES[digit.label] / f'{number:05d}_scan{digit.source["scan"]:04d}.png'
            file.write_bytes(encode_image(scene.image, '.png'))
        rows.append(dict(format='ImageNet', split=split, path=folder.relative_to(root), images=count, objects=count))
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
        counts = (1, 4 if name == 'counts' else 1)
        sides = (largest - 2, largest)
        for split, (scans_of, divisor) in splits.items():
            (folder / 'images' / split).mkdir(parents=True)
            lines[split] = []
            rng = options.generator(f'{split} vtab {name}')
            drawn = scenes.draw(scans_of, rng, crop, counts, sides, (0.25, 0.5))
            for number, scene in zip(track(range(max(1, options.vtab // divisor)), f'{name} {split}'), drawn):
                labels = scene.things[0].label, scene.photograph, len(scene.things) - 1
                path = f'images/{split}/{number:05d}.png'
                (folder / path).write_bytes(encode_image(scene.image, '.png'))
                lines[split].append(f'{path} {labels[VTAB_SETS.index(name)]}')
            total = len(lines[split])
            rows.append(dict(format='VTAB', split=split, path=folder.relative_to(root), images=total, objects=total))
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
        raise DataError(f'{root} is not empty. Choose another directory, or replace mini data with --overwrite.')
    marker = root / MARKER
    if not marker.is_file():
        raise DataError(f'{root} has no {MARKER}, so mmlape did not make it and --overwrite does not replace it.')
    try:
        made_before = set(json.loads(marker.read_text())['files'])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f'{marker} cannot be read ({error!r}). Remove {root} yourself.') from error
    for path in sorted(root.rglob('*')):
        name = path.relative_to(root).as_posix()
        if (path.is_symlink() or not path.is_dir()) and name not in made_before:
            raise DataError(
                f'{path} was not made by mmlape, so --overwrite does not replace {root}. Move it elsewhere.'
            )
