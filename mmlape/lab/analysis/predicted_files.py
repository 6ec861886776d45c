"""Predictions on the images of a folder as files: overlays, PNG label maps, COCO JSON.

<out>/overlays/NAME        the prediction drawn on the image
<out>/labels/NAME.png      segmentation: the label of each pixel, a place in the list of the classes
<out>/classes.json         segmentation: the classes
<out>/predictions.json     detection: images, categories and annotations, as COCO's files have them
<out>/predictions.json     classification: for each image its class, its score, and the five most likely classes
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress
from torch import from_numpy

from mmlape.console import console
from mmlape.errors import DataError
from mmlape.files import atomic_path, write_json
from mmlape.lab.analysis.drawing import image_suffixes, write_image
from mmlape.lab.analysis.images import find_images
from mmlape.lab.analysis.prediction import Model
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.evaluation.saved import object_rows, row_lines, save_label_map, write_rows

LONGEST = 2048  # pixels, of the drawing of an image in tiles: all masks are in memory for it


class Writer(ABC):
    """Writes the predictions of a task.

    Args:
        out: The folder.
        classes: The names of the labels.
        names: The paths of all images in their folder.
    """

    def __init__(self, out: Path, classes: Sequence[str], names: Sequence[Path]) -> None:
        self.out, self.classes, self.names = out, list(classes), names

    @abstractmethod
    def add(self, name: Path, prediction: Any) -> None:
        """Write or keep a prediction of the image with this path in its folder."""

    @abstractmethod
    def close(self) -> None:
        """Write what is about all images."""


class LabelMaps(Writer):
    """Segmentations as PNG files."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.files = map_names(self.names)

    def add(self, name: Path, prediction: Any) -> None:
        """Write a label map."""
        palette = class_palette(len(self.classes))
        save_label_map(
            self.out / 'labels' / self.files[name], from_numpy(prediction.labels), len(self.classes), False, palette
        )

    def close(self) -> None:
        """Write the names of the labels."""
        write_json(self.out / 'classes.json', self.classes)


def map_names(names: Sequence[Path]) -> dict[Path, Path]:
    """Return the label map of each image: NAME.png, or NAME.jpg.png where another could have that name.

    Names that differ in case only count as one: some disks do not tell them apart.
    """
    short = {name: name.with_suffix('.png') for name in names}
    long = {name: Path(f'{name}.png') for name in names}
    taken = Counter(str(file).casefold() for file in [*short.values(), *long.values()])
    return {name: short[name] if taken[str(short[name]).casefold()] == 1 else long[name] for name in names}


class CocoFile(Writer):
    """Detections as one COCO file, whose categories are numbered from 1."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.images: list[dict] = []
        self.annotations: list[dict] = []

    def add(self, name: Path, prediction: Any) -> None:
        """Keep an image and its objects."""
        height, width = prediction.size
        image_id = len(self.images) + 1
        self.images.append(dict(id=image_id, file_name=name.as_posix(), width=width, height=height))
        ids = range(1, len(self.classes) + 1)
        for row in object_rows(prediction.sample.pred_instances, image_id, ids):
            area = float(row['bbox'][2] * row['bbox'][3])
            if 'segmentation' in row:
                area = _pixels(row['segmentation'])
            self.annotations.append(dict(id=len(self.annotations) + 1, **row, area=area, iscrowd=0))

    def close(self) -> None:
        """Write the file, a row a line."""
        categories = [dict(id=number, name=name) for number, name in enumerate(self.classes, 1)]
        parts = dict(images=self.images, categories=categories, annotations=self.annotations)
        text = ',\n'.join(f'{json.dumps(name)}: {row_lines(rows)}' for name, rows in parts.items())
        with atomic_path(self.out / 'predictions.json') as partial:
            partial.write_text(f'{{\n{text}\n}}\n', encoding='utf-8')


def _pixels(segmentation: dict) -> int:
    from pycocotools import mask as coco_mask

    return int(coco_mask.area(segmentation))


class ClassRows(Writer):
    """Classifications as one JSON file."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.rows: list[dict] = []

    def add(self, name: Path, prediction: Any) -> None:
        """Keep the class of an image."""
        best = {'class': prediction.name, 'score': prediction.score}
        self.rows.append(dict(image=name.as_posix(), **best, top=dict(prediction.top())))

    def close(self) -> None:
        """Write the file, an image a line."""
        write_rows(self.out / 'predictions.json', self.rows)


WRITERS: dict[str, type[Writer]] = dict(detection=CocoFile, segmentation=LabelMaps, classification=ClassRows)


def images_to_predict(images: str | Path, out: str | Path, overwrite: bool = False) -> list[Path]:
    """Return the images in a folder, or one image; those in ``out`` are left out.

    Raises:
        DataError: There are none, or ``out`` has files already and ``overwrite`` is not set, or is
            a file.
    """
    images, out = Path(images), Path(out)
    if not images.exists():
        raise DataError(f'{images} does not exist: give a folder of images, or an image')
    if out.exists() and not out.is_dir():
        raise DataError(f'{out} is a file: give a folder for the predictions')
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise DataError(f'{out} has files already: give another folder, or --overwrite to replace them')
    inside = out.resolve()
    found = [Path(path) for path in find_images(images) if not Path(path).resolve().is_relative_to(inside)]
    if not found:
        raise DataError(f'{images}: all images of this folder are in {out}, where predictions are written')
    return found


def predict_files(
    model: Model,
    images: str | Path,
    out: str | Path,
    *,
    batch_size: int = 1,
    score_thr: float = 0.3,
    overlays: bool = True,
    overwrite: bool = False,
    tile: int | None = None,
    overlap: int | None = None,
) -> tuple[int, list[tuple[Path, str]]]:
    """Predict on the images of a folder and those below it, and write what the head of this module lists.

    Args:
        model: Of :func:`mmlape.lab.analysis.prediction.load`.
        images: The folder, or one image.
        out: The folder of the files.
        batch_size: How many images the model gets at once.
        score_thr: Objects with a lower score are not drawn; the JSON has them.
        overlays: Whether to draw.
        overwrite: Whether ``out`` may have files already.
        tile: The side of tiles in pixels, as of ``Model.predict``; drawings have at most
            `LONGEST` pixels then.
        overlap: Pixels that neighbouring tiles share.

    Returns:
        The number of images that were predicted on, and those that were skipped with the reasons.

    Raises:
        ConfigError: There are no such tiles.
        DataError: See `images_to_predict`; or a file cannot be written.
    """
    model.tiling(tile, overlap)
    found, out = images_to_predict(images, out, overwrite), Path(out)
    root = Path(images) if Path(images).is_dir() else Path(images).parent
    names = [path.relative_to(root) for path in found]
    writer = WRITERS[model.task](out, model.classes, names)
    skipped: list = []
    done = 0
    terminal = console(stderr=True)
    with Progress(console=terminal, disable=not terminal.is_terminal) as progress:
        images_bar = progress.add_task('images', total=len(found))
        tiles_bar = progress.add_task('tiles of the image', total=None, visible=tile is not None)
        results = model.predict_each(
            found,
            batch_size,
            skipped,
            tile,
            overlap,
            lambda place, total: progress.update(tiles_bar, completed=place, total=total),
        )
        try:
            for prediction in results:
                name = prediction.path.relative_to(root)
                writer.add(name, prediction)
                if overlays:
                    file = name if name.suffix.lower() in image_suffixes() else name.with_suffix('.png')
                    drawn = prediction.draw(score_thr, LONGEST if tile else None)
                    write_image(drawn, out / 'overlays' / file)
                done += 1
                progress.update(images_bar, completed=done + len(skipped))
        finally:  # also what was found before an interrupt
            if done:
                writer.close()
    return done, skipped
