"""Predictions on the images of a folder, or on the frames of a video, as files.

<out>/overlays/NAME        the prediction drawn on the image
<out>/...                  of images: what `mmlape.lab.inference.results` lists

<out>/predictions.jsonl    of a video: a line a frame, its number, its time, and what is predicted on it
<out>/overlays/NAME.mp4    the predictions drawn
<out>/clip.json            what the lines are of, and, once it is complete, the number of frames

A frame is drawn from its line. So a run that was killed resumes: frames that have a line are drawn again, without the
model. OpenCV reads and writes videos where it can, else PyAV, as the library supervision decides.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image
from rich.progress import Progress

from mmlape.console.log import log
from mmlape.console.terminal import console
from mmlape.errors import ConfigError, DataError
from mmlape.files import atomic_path, naming, read_json, sha256, write_json
from mmlape.lab.inference.drawing import draw_sample, drawing_name, write_image
from mmlape.lab.inference.images import find_images
from mmlape.lab.inference.prediction import Model
from mmlape.lab.inference.results import RESULTS, WRITERS
from mmlape.lab.inference.tiling import Tiling
from mmlape.lab.runs.identity import digest
from mmlape.lab.training.frozen.shared import SharedPart

LINES, RECORD = 'predictions.jsonl', 'clip.json'
LEGEND_LINES = 2  # of each frame: all have one size


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


def is_clip(path: str | Path) -> bool:
    """Return whether a file is a video, by its content.

    Raises:
        DataError: It is neither an image nor a video.
    """
    if not os.path.isfile(path) or cv2.haveImageReader(str(path)):
        return False
    with suppress(OSError), Image.open(path) as image:
        image.load()
        return False
    with open(path, 'rb') as file:
        if b'\0' not in file.read(1 << 16):  # a text, of which FFmpeg would make a video
            raise DataError(f'{path} is neither an image nor a video: give a folder of images, an image or a video')
    return bool(_info(path))


def _info(path: str | Path) -> Any:
    """Return a video's ``width``, ``height``, ``fps`` and ``total_frames``; the last two are as its file says."""
    from supervision import VideoInfo

    try:
        return VideoInfo.from_video_path(str(path))
    except Exception as error:  # of no common base
        raise DataError(
            f'{path} is no image, and no video that OpenCV or PyAV read here ({error}): convert it, or install av'
        ) from error


def predict_clip(
    model: Model,
    path: str | Path,
    out: str | Path,
    *,
    batch_size: int = 1,
    score_thr: float = 0.3,
    overlays: bool = True,
    labels: bool = True,
    overwrite: bool = False,
    tile: int | None = None,
    overlap: int | None = None,
) -> int:
    """Predict on the frames of a video, and write what the head of this module lists; return their number.

    Args:
        model: Of :func:`mmlape.lab.inference.prediction.load`.
        path: The video.
        out: The folder of the files; one that has a part of them is completed.
        batch_size: How many frames the model gets at once.
        score_thr: Objects with a lower score are not drawn; the lines have them.
        overlays: Whether to write the video.
        labels: Whether to write names of classes into it.
        overwrite: Whether to replace what ``out`` has.
        tile: The side of tiles in pixels, as of ``Model.predict``.
        overlap: Pixels that neighbouring tiles share.

    Raises:
        ConfigError: There are no such tiles, or no video can be written.
        DataError: The video cannot be read, or ``out`` has the files of another one, or of another model.
    """
    from supervision import get_video_frames_generator

    path, out, tiling, info = Path(path), Path(out), model.tiling(tile, overlap), _info(path)
    weights = sha256(model.checkpoint) if model.checkpoint else None
    record = dict(video=path.name, sha256=sha256(path), tile=tile, overlap=overlap, checkpoint=weights)
    record['config'] = digest(str([model.module.cfg.get(key) for key in ('model', 'test_pipeline', 'test_cfg')]))
    lines, started = out / LINES, read_json(out / RECORD) or {}
    if overwrite or not started or 'frames' in started:
        require_room(out, overwrite)
        lines.unlink(missing_ok=True)
    elif other := [key for key in record if started.get(key) != record[key]]:
        raise DataError(
            f'{out} has a part of another prediction (other {", ".join(other)}): give another folder, or --overwrite'
        )
    write_json(out / RECORD, record)
    done = _complete_lines(lines)
    frames = (frame[..., ::-1] for frame in get_video_frames_generator(str(path)))
    fps = info.fps if 0 < info.fps < 1000 else 25.0  # where the file does not say
    total, count = max(info.total_frames or 0, 0), 0

    def known() -> Iterator[tuple[dict, np.ndarray]]:
        with open(lines, encoding='utf-8') as old:
            for _, line, frame in zip(range(done), old, frames):
                yield json.loads(line), frame

    def new() -> Iterator[tuple[dict, np.ndarray]]:
        with naming(lines), open(lines, 'a', encoding='utf-8') as file:
            for prediction in model.predict_each(frames, batch_size, None, tile, overlap, watch):
                row = dict(frame=count, seconds=round(count / fps, 3), **prediction.row())
                file.write(json.dumps(row, ensure_ascii=False) + '\n')
                file.flush()
                yield row, prediction.image

    def drawn() -> Iterator[np.ndarray]:
        nonlocal count
        for row, frame in chain(known(), new()):
            count += 1
            advance(count)
            if overlays:
                sample = RESULTS[model.task].sample_of(row, model.classes)
                options: dict = dict(labels=labels, shortest=0, legend_lines=LEGEND_LINES)
                yield draw_sample(frame, sample, model.classes, model.palette, score_thr, ('pred',), **options)

    with watched('frames', total or None, tiling) as (advance, watch):
        _write_video(out / 'overlays' / f'{path.stem}.mp4', fps, drawn())
    if not count:
        raise DataError(f'{path}: no frame of this video can be read')
    if count < total:
        log(f'{path}: {count} frames can be read, of {total} that the file says it has', logging.WARNING)
    write_json(out / RECORD, dict(record, frames=count))
    return count


def _complete_lines(path: Path) -> int:
    """Return how many lines a file has, of which one that a kill has cut is removed."""
    done = end = 0
    with open(path, 'ab+') as file:
        file.seek(0)
        for line in file:
            if line.endswith(b'\n'):
                done, end = done + 1, end + len(line)
        file.truncate(end)
    return done


def _write_video(path: Path, fps: float, frames: Iterator[np.ndarray]) -> None:
    """Write frames, RGB, as a video, which is there once it is complete; none if there is no frame."""
    from supervision import VideoInfo, VideoSink

    for partial in path.parent.glob(f'.*{path.suffix}'):  # of a run that was killed
        partial.unlink()
    first, count = next(frames, None), 0
    if first is None:
        return
    # four digits: MPEG-4 knows no finer fraction of a second
    info = VideoInfo(first.shape[1], first.shape[0], float(f'{fps:.4g}'))
    with atomic_path(path) as partial:
        with ExitStack() as stack:
            try:
                sink = stack.enter_context(VideoSink(str(partial), info))
            except Exception as error:  # of no common base
                raise ConfigError(
                    f'neither OpenCV nor PyAV writes {path} here ({error}): install av, or give --no-overlays'
                ) from error
            for frame in chain([first], frames):
                sink.write_frame(np.ascontiguousarray(frame[..., ::-1]))
                count += 1
        if (written := _info(partial).total_frames) != count:
            raise DataError(f'{path}: only {written} of {count} frames could be written; is the disk full?')
