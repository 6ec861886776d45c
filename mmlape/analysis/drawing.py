"""Drawings of boxes, masks and label maps, with MMEngine's visualizer, on images enlarged to a legible size.

Images are (H, W, 3) uint8 arrays in RGB order throughout.
"""

import math
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from mmcv import imresize
from mmengine.structures import InstanceData
from mmengine.visualization import Visualizer
from PIL import Image, ImageDraw, ImageFont

from mmlape.datasets.palette import class_palette
from mmlape.errors import DataError
from mmlape.files import atomic_path

MIN_LONGER_SIDE = 640  # pixels, of a drawing
BLACK, WHITE = (20, 20, 20), (255, 255, 255)


def draw_instances(
    image: np.ndarray, instances: InstanceData, classes: Sequence[str], score_thr: float = 0.0
) -> np.ndarray:
    """Draw boxes, masks and labels on an image.

    Args:
        image: (H, W, 3), RGB.
        instances: ``bboxes`` (N, 4) as x1, y1, x2, y2 and ``labels`` (N,); ``scores`` (N,) and ``masks`` (N, H, W)
            if it has any. Tensors, arrays, or boxes and masks of MMDetection.
        classes: Name of each label.
        score_thr: Instances with a lower score are left out.

    Returns:
        (H * f, W * f, 3), with f >= 1 such that the longer side is legible.
    """
    boxes, labels, scores, masks = _as_arrays(instances)
    kept = np.ones(len(labels), bool) if scores is None else scores >= score_thr
    enlarged = enlarge(image)
    canvas = Visualizer()
    canvas.set_image(enlarged)
    if not kept.any():
        return enlarged
    palette = class_palette(len(classes))
    colours = [tuple(palette[label]) for label in labels[kept]]
    height, width = enlarged.shape[:2]
    if masks is not None:
        large = [imresize(mask.astype(np.uint8), (width, height), interpolation='nearest') for mask in masks[kept]]
        canvas.draw_binary_masks(np.stack(large).astype(bool), colors=colours, alphas=0.5)
    boxes = boxes[kept] * (width / image.shape[1])
    stroke = max(2, max(enlarged.shape) // 300)
    canvas.draw_bboxes(boxes, edge_colors=colours, line_widths=stroke, alpha=1.0)
    texts = [classes[label] for label in labels[kept]]
    if scores is not None:
        texts = [f'{text} {score:.2f}' for text, score in zip(texts, scores[kept])]
    return _draw_tags(np.ascontiguousarray(canvas.get_image()), texts, boxes, colours)


def draw_label_map(
    image: np.ndarray, labels: np.ndarray, classes: Sequence[str], opacity: float = 0.55
) -> tuple[np.ndarray, dict[str, tuple[int, ...]]]:
    """Draw a label map over an image.

    Args:
        image: (H, W, 3), RGB.
        labels: (H, W), label of each pixel; pixels with a label of no class are left unchanged.
        classes: Name of each label.
        opacity: Of the colours, in [0, 1].

    Returns:
        The drawing, (H * f, W * f, 3), and the colour of each class in it, the largest area first.
    """
    enlarged = enlarge(image)
    height, width = enlarged.shape[:2]
    areas = np.bincount(labels[(labels >= 0) & (labels < len(classes))].ravel().astype(np.int64))
    present = [int(label) for label in np.argsort(-areas, kind='stable') if areas[label]]
    if not present:
        return enlarged, {}
    palette = class_palette(len(classes))
    large = imresize(labels.astype(np.uint16), (width, height), interpolation='nearest')
    canvas = Visualizer()
    canvas.set_image(enlarged)
    colours = {classes[label]: tuple(palette[label]) for label in present}
    masks = np.stack([large == label for label in present])
    canvas.draw_binary_masks(masks, colors=list(colours.values()), alphas=opacity)
    return np.ascontiguousarray(canvas.get_image()), colours


def legend(colours: dict[str, tuple[int, ...]], height: int) -> np.ndarray:
    """Draw class names beside their colours, (height, w, 3), in as many columns as the height requires."""
    font = _font(18)
    row, square, gap = 30, 20, 12
    rows = max(1, (height - gap) // row)
    names = list(colours)
    columns = [names[start : start + rows] for start in range(0, len(names), rows)]
    widths = [math.ceil(max(font.getlength(name) for name in column)) + square + 3 * gap for column in columns]
    panel = Image.new('RGB', (sum(widths), height), WHITE)
    pen = ImageDraw.Draw(panel)
    left = gap
    for column, width in zip(columns, widths):
        for number, name in enumerate(column):
            top = gap // 2 + number * row
            pen.rectangle([left, top + 5, left + square, top + 5 + square], fill=colours[name], outline=BLACK)
            pen.text((left + square + gap, top + row // 2), name, fill=BLACK, font=font, anchor='lm')
        left += width
    return np.asarray(panel)


def titled(image: np.ndarray, title: str) -> np.ndarray:
    """Draw a line of text above an image, in a smaller font where it would not fit."""
    size = 22
    while _font(size).getlength(title) > image.shape[1] - 16 and size > 10:
        size -= 1
    band = Image.new('RGB', (image.shape[1], 40), WHITE)
    ImageDraw.Draw(band).text((image.shape[1] // 2, 20), title, fill=BLACK, font=_font(size), anchor='mm')
    return np.concatenate([np.asarray(band), image])


def beside(images: Sequence[np.ndarray], gap: int = 10) -> np.ndarray:
    """Join images side by side, aligned at the top."""
    height = max(image.shape[0] for image in images)
    width = sum(image.shape[1] for image in images) + gap * (len(images) - 1)
    joined = np.full((height, width, 3), WHITE, np.uint8)
    left = 0
    for image in images:
        joined[: image.shape[0], left : left + image.shape[1]] = image
        left += image.shape[1] + gap
    return joined


def enlarge(image: np.ndarray) -> np.ndarray:
    """Enlarge a small image to a longer side of `MIN_LONGER_SIDE`; copy others."""
    factor = MIN_LONGER_SIDE / max(image.shape[:2])
    if factor <= 1:
        return image.copy()
    height, width = image.shape[:2]
    return imresize(image, (round(width * factor), round(height * factor)), interpolation='bicubic')


def check_image_path(path: str | Path) -> None:
    """Make the folder of an image, before it is computed, and check that it can be written there.

    Raises:
        DataError: It cannot.
    """
    path = Path(path)
    Image.init()
    known = {suffix for suffix, name in Image.registered_extensions().items() if name in Image.SAVE}
    if path.suffix.lower() not in known:
        raise DataError(f'{path}: an image needs a suffix such as .png or .jpg, not {path.suffix!r}')
    if path.is_dir():
        raise DataError(f'{path} is a folder: give the path of an image')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DataError(f'cannot write {path}: {error.strerror}') from error


def write_image(image: np.ndarray, path: str | Path) -> None:
    """Write an image, in the format of the path's suffix.

    Raises:
        DataError: It cannot be written.
    """
    check_image_path(path)
    try:
        with atomic_path(path) as partial:
            Image.fromarray(image).save(partial)
    except (OSError, ValueError) as error:
        raise DataError(f'cannot write {path}: {error}') from error


def _as_arrays(instances: InstanceData) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return boxes, labels, scores and masks as arrays, from any of MMDetection's types."""
    boxes = getattr(instances.bboxes, 'tensor', instances.bboxes)
    masks = instances.get('masks')
    if masks is not None:
        masks = masks.to_ndarray() if hasattr(masks, 'to_ndarray') else np.asarray(masks)
    scores = instances.get('scores')
    scores = None if scores is None else np.asarray(scores)
    return np.asarray(boxes, dtype=float).reshape(-1, 4), np.asarray(instances.labels), scores, masks


def _draw_tags(image: np.ndarray, texts: list[str], boxes: np.ndarray, colours: list[tuple]) -> np.ndarray:
    """Draw each box's text above it, or where that covers another text: below, or inside at the top or bottom."""
    height, width = image.shape[:2]
    font = _font(max(15, max(height, width) // 42))
    line = font.size + 4
    sheet = Image.fromarray(image)
    pen = ImageDraw.Draw(sheet)
    occupied: list[tuple[float, float, float, float]] = []
    for text, (x1, y1, _, y2), colour in zip(texts, boxes, colours):
        length = font.getlength(text) + 6
        left = float(np.clip(x1, 0, max(0, width - length)))
        positions = [(left, top) for top in (y1 - line, y2, y1, y2 - line) if 0 <= top <= height - line]
        free = [
            position
            for position in positions
            if not any(_overlap((*position, length, line), other) for other in occupied)
        ]
        left, top = (free or positions or [(left, 0.0)])[0]
        occupied.append((left, top, length, line))
        pen.rectangle([left, top, left + length, top + line], fill=colour)
        bright = np.dot(colour, (0.299, 0.587, 0.114)) > 140
        pen.text((left + 3, top + line / 2), text, fill=BLACK if bright else WHITE, font=font, anchor='lm')
    return np.asarray(sheet)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Return whether two rectangles (left, top, width, height) overlap."""
    return all(one[i] < other[i] + other[i + 2] and other[i] < one[i] + one[i + 2] for i in (0, 1))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Load matplotlib's own font, so that drawings are the same on every machine."""
    return ImageFont.truetype(font_manager.findfont('DejaVu Sans'), size)
