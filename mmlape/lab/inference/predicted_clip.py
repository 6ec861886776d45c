"""Predictions on the frames of a video: a line of JSON for each, and a video with drawings.

<out>/predictions.jsonl    a line a frame: its number, its time, and what is predicted on it
<out>/overlays/NAME.mp4    the predictions drawn
<out>/clip.json            what the lines are of, and, once it is complete, the number of frames

A frame is drawn from its line. So a run that was killed resumes: frames that have a line are drawn again, without the
model. OpenCV reads and writes videos where it can, else PyAV, as the library supervision decides.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from PIL import Image
from pycocotools import mask as coco_mask

from mmlape.console.log import log
from mmlape.errors import ConfigError, DataError
from mmlape.files import atomic_path, naming, read_json, sha256, write_json
from mmlape.lab.evaluation.saved import object_rows
from mmlape.lab.inference.drawing import draw_sample
from mmlape.lab.inference.predicted_files import described, require_room, watched
from mmlape.lab.inference.prediction import Model
from mmlape.lab.runs.identity import digest

LINES, RECORD = 'predictions.jsonl', 'clip.json'
LEGEND_LINES = 2  # of each frame: all have one size


def is_clip(path: str | Path) -> bool:
    """Return whether a file is a video, by its content.

    Raises:
        DataError: It is neither an image nor a video.
    """
    if not os.path.isfile(path) or cv2.haveImageReader(str(path)):
        return False
    with contextlib.suppress(OSError), Image.open(path) as image:
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
                row = dict(frame=count, seconds=round(count / fps, 3), **_row(model, prediction))
                file.write(json.dumps(row, ensure_ascii=False) + '\n')
                file.flush()
                yield row, prediction.image

    def drawn() -> Iterator[np.ndarray]:
        nonlocal count
        for row, frame in chain(known(), new()):
            count += 1
            advance(count)
            if overlays:
                sample = _sample(model, row)
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
        with contextlib.ExitStack() as stack:
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


def _row(model: Model, prediction: Any) -> dict:
    """Return what is predicted on a frame as JSON's values; masks as COCO's run lengths."""
    if model.task == 'detection':
        found = object_rows(prediction.sample.pred_instances, 0, None)
        keys = ('bbox', 'score', 'segmentation')
        return dict(
            objects=[
                {'class': model.classes[row['category_id']], **{key: row[key] for key in keys if key in row}}
                for row in found
            ]
        )
    if model.task == 'classification':
        return described(prediction)
    masks = {}
    for label in np.unique(prediction.labels):
        encoded = coco_mask.encode(np.asfortranarray(prediction.labels == label, np.uint8))
        masks[model.classes[label]] = dict(encoded, counts=encoded['counts'].decode())
    return dict(classes=masks)


def _sample(model: Model, row: dict) -> BaseDataElement:
    """Return the sample of a row of `_row`."""
    if model.task == 'classification':
        label, score = model.classes.index(row['class']), torch.tensor([row['score']])
        return BaseDataElement(pred_label=torch.tensor([label]), pred_score=score)
    if model.task == 'segmentation':
        size = next(iter(row['classes'].values()))['size']
        labels = np.zeros(size, np.uint16)
        for name, mask in row['classes'].items():
            labels[coco_mask.decode(mask) > 0] = model.classes.index(name)
        return BaseDataElement(pred_sem_seg=PixelData(data=labels[None]))
    found = row['objects']
    boxes = torch.tensor([one['bbox'] for one in found]).reshape(-1, 4)
    objects = InstanceData(
        bboxes=torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1),
        scores=torch.tensor([one['score'] for one in found]),
        labels=torch.tensor([model.classes.index(one['class']) for one in found], dtype=torch.long),
    )
    masks: Sequence[dict] = [one['segmentation'] for one in found if 'segmentation' in one]
    if found and len(masks) == len(found):
        objects.masks = masks
    return BaseDataElement(pred_instances=objects)
