"""Predictions on the images of a folder as files: overlays, PNG label maps, COCO JSON.

<out>/overlays/NAME        the prediction drawn on the image
<out>/labels/NAME.png      segmentation: the label of each pixel, a place in the list of the classes
<out>/classes.json         segmentation: the classes
<out>/predictions.json     detection: images, categories and annotations, as COCO's files have them
<out>/predictions.json     classification: for each image its class, its score, and the five most likely classes
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pycocotools import mask as coco_mask
from rich.progress import Progress
from torch import from_numpy

from mmlape.console.terminal import console
from mmlape.errors import DataError
from mmlape.files import write_json, write_text
from mmlape.lab.evaluation.saved import object_rows, row_lines, save_label_map, write_rows
from mmlape.lab.inference.drawing import drawing_name, write_image
from mmlape.lab.inference.images import find_images
from mmlape.lab.inference.prediction import Model
from mmlape.lab.inference.tiling import Tiling
from mmlape.lab.training.frozen.shared import SharedPart

Write = Callable[[Path, Any], None]
"""Writes what is predicted on an image, whose path is that in its folder."""


@contextmanager
def write_label_maps(out: Path, classes: Sequence[str], names: Sequence[Path]) -> Iterator[Write]:
    """Write segmentations as PNG files, and the names of the labels; ``names`` are those of all images."""
    files = map_names(names)
    write_json(out / 'classes.json', list(classes))

    def write(name: Path, prediction: Any) -> None:
        labels = from_numpy(prediction.labels)
        save_label_map(out / 'labels' / files[name], labels, len(classes), False, prediction.palette)

    yield write


def map_names(names: Sequence[Path]) -> dict[Path, Path]:
    """Return the label map of each image: NAME.png, or NAME.jpg.png where another could have that name.

    Names that differ in case only count as one: some disks do not tell them apart.
    """
    short = {name: name.with_suffix('.png') for name in names}
    long = {name: Path(f'{name}.png') for name in names}
    taken = Counter(str(file).casefold() for file in [*short.values(), *long.values()])
    return {name: short[name] if taken[str(short[name]).casefold()] == 1 else long[name] for name in names}


@contextmanager
def write_coco(out: Path, classes: Sequence[str], names: Sequence[Path]) -> Iterator[Write]:
    """Write detections as one COCO file, whose categories are numbered from 1, a row a line."""
    categories = [dict(id=number, name=name) for number, name in enumerate(classes, 1)]
    images: list[dict] = []
    annotations: list[dict] = []

    def write(name: Path, prediction: Any) -> None:
        height, width = prediction.size
        images.append(dict(id=len(images) + 1, file_name=name.as_posix(), width=width, height=height))
        for row in object_rows(prediction.sample.pred_instances, len(images), range(1, len(classes) + 1)):
            mask = row.get('segmentation')
            area = float(row['bbox'][2] * row['bbox'][3]) if mask is None else int(coco_mask.area(mask))
            annotations.append(dict(id=len(annotations) + 1, **row, area=area, iscrowd=0))

    try:
        yield write
    finally:  # also what was found before an interrupt
        parts = dict(images=images, categories=categories, annotations=annotations)
        text = ',\n'.join(f'{json.dumps(name)}: {row_lines(rows)}' for name, rows in parts.items())
        if images:
            write_text(out / 'predictions.json', f'{{\n{text}\n}}\n')


@contextmanager
def write_classes(out: Path, classes: Sequence[str], names: Sequence[Path]) -> Iterator[Write]:
    """Write classifications as one JSON file, an image a line."""
    rows: list[dict] = []
    try:
        yield lambda name, prediction: rows.append(dict(image=name.as_posix(), **described(prediction)))
    finally:
        if rows:
            write_rows(out / 'predictions.json', rows)


def described(prediction: Any) -> dict:
    """Return a classification as JSON's values."""
    return {'class': prediction.name, 'score': prediction.score, 'top': dict(prediction.top())}


WRITERS = dict(detection=write_coco, segmentation=write_label_maps, classification=write_classes)


def images_to_predict(images: str | Path, out: str | Path, overwrite: bool = False) -> list[Path]:
    """Return the images in a folder, or one image; those in ``out`` are left out.

    Raises:
        DataError: There are none, or ``out`` has files already and ``overwrite`` is not set, or is
            a file.
    """
    images, out = Path(images), Path(out)
    if not images.exists():
        raise DataError(f'{images} does not exist: give a folder of images, or an image')
    require_room(out, overwrite)
    inside = out.resolve()
    found = [Path(path) for path in find_images(images) if not Path(path).resolve().is_relative_to(inside)]
    if not found:
        raise DataError(f'{images}: all images of this folder are in {out}, where predictions are written')
    return found


def require_room(out: Path, overwrite: bool) -> None:
    """Raise DataError if a folder of predictions is a file, or has files that may not be replaced."""
    if out.exists() and not out.is_dir():
        raise DataError(f'{out} is a file: give a folder for the predictions')
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise DataError(f'{out} has files already: give another folder, or --overwrite to replace them')


@contextmanager
def watched(what: str, total: int | None, tiling: Tiling | None) -> Iterator[tuple[Callable, Callable]]:
    """Show how far predictions are, on a terminal; yield what is told of images that are done, and of tiles of one."""
    terminal = console(stderr=True)
    with Progress(console=terminal, disable=not terminal.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        tiles = progress.add_task('tiles of the image', total=None, visible=tiling is not None)
        yield (
            lambda done: progress.update(bar, completed=done),
            lambda place, every: progress.update(tiles, completed=place, total=every),
        )


def predict_files(
    model: Model | Mapping[str, Model],
    images: str | Path,
    out: str | Path | Sequence[str | Path],
    *,
    batch_size: int = 1,
    score_thr: float = 0.3,
    overlays: bool = True,
    labels: bool = True,
    overwrite: bool = False,
    tile: int | None = None,
    overlap: int | None = None,
) -> tuple[int, list[tuple[Path, str]]]:
    """Predict on the images of a folder and those below it, and write what the head of this module lists.

    Args:
        model: Of :func:`mmlape.lab.inference.prediction.load`; or several by name, over one frozen part, which runs
            once.
        images: The folder, or one image.
        out: The folder of the files, of several models one of each.
        batch_size: How many images the model gets at once.
        score_thr: Objects with a lower score are not drawn; the JSON has them.
        overlays: Whether to draw.
        labels: Whether to write names of classes into the drawings.
        overwrite: Whether ``out`` may have files already.
        tile: The side of tiles in pixels, as of ``Model.predict``.
        overlap: Pixels that neighbouring tiles share.

    Returns:
        The number of images that were predicted on, and those that were skipped with the reasons.

    Raises:
        ConfigError: There are no such tiles, or models have no frozen part in common.
        DataError: See `images_to_predict`; or a file cannot be written.
    """
    named = model if isinstance(model, Mapping) else {'': model}
    models, outs = list(named.values()), [Path(one) for one in ([out] if isinstance(out, str | Path) else out)]
    tiling = models[0].tiling(tile, overlap)
    found, *others = [images_to_predict(images, one, overwrite) for one in outs]
    outside = set(found).intersection(*others)
    found = [path for path in found if path in outside]
    root = Path(images) if Path(images).is_dir() else Path(images).parent
    names = [path.relative_to(root) for path in found]
    skipped: list = []
    done = 0
    with ExitStack() as stack:
        advance, watch = stack.enter_context(watched('images', len(found), tiling))
        if len(models) > 1:
            stack.enter_context(SharedPart({name: one.module for name, one in named.items()}).running_once())
        writers = [
            stack.enter_context(WRITERS[one.task](folder, one.classes, names)) for one, folder in zip(models, outs)
        ]
        each = [
            one.predict_each(found, batch_size, skipped if one is models[0] else [], tile, overlap, watch)
            for one in models
        ]
        for predictions in zip(*each, strict=True):
            for prediction, write, folder in zip(predictions, writers, outs):
                name = prediction.path.relative_to(root)
                write(name, prediction)
                if overlays:
                    write_image(prediction.draw(score_thr, labels), folder / 'overlays' / drawing_name(name))
            done += 1
            advance(done + len(skipped))
    return done, skipped
