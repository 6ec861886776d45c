"""Pictures of boxes, masks and label maps, drawn with MMEngine's visualizer, enlarged until they can be read.

Images are (H, W, 3) uint8 arrays in RGB order throughout.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib import font_manager
from mmcv import imresize
from mmengine.structures import InstanceData
from mmengine.visualization import Visualizer
from PIL import Image, ImageDraw, ImageFont

from mmlape.datasets.palette import class_palette

SMALLEST_SIDE = 640  # pixels that the longer side of a drawn picture has at least
INK, PAPER = (20, 20, 20), (255, 255, 255)


def draw_instances(
    image: np.ndarray, instances: InstanceData, classes: Sequence[str], score_thr: float = 0.0
) -> np.ndarray:
    """Draws boxes, masks and labels on an image.

    Args:
        image: (H, W, 3), RGB.
        instances: ``bboxes`` (N, 4) as x1, y1, x2, y2 and ``labels`` (N,); ``scores`` (N,) and ``masks`` (N, H, W)
            where there are any. Tensors, arrays, boxes and masks of MMDetection.
        classes: Name of each label.
        score_thr: Instances with a lower score are left out.

    Returns:
        (H * f, W * f, 3), with f >= 1 such that the longer side is legible.
    """
    boxes, labels, scores, masks = _as_arrays(instances)
    kept = np.ones(len(labels), bool) if scores is None else scores >= score_thr
    picture = enlarge(image)
    canvas = Visualizer()
    canvas.set_image(picture)
    if not kept.any():
        return picture
    palette = class_palette(len(classes))
    colours = [tuple(palette[label]) for label in labels[kept]]
    height, width = picture.shape[:2]
    if masks is not None:
        large = [imresize(mask.astype(np.uint8), (width, height), interpolation='nearest') for mask in masks[kept]]
        canvas.draw_binary_masks(np.stack(large).astype(bool), colors=colours, alphas=0.5)
    boxes = boxes[kept] * (width / image.shape[1])
    stroke = max(2, max(picture.shape) // 300)
    canvas.draw_bboxes(boxes, edge_colors=colours, line_widths=stroke, alpha=1.0)
    texts = [classes[label] for label in labels[kept]]
    if scores is not None:
        texts = [f'{text} {score:.2f}' for text, score in zip(texts, scores[kept])]
    picture = np.ascontiguousarray(canvas.get_image())
    return _write_tags(picture, texts, boxes, colours)


def draw_label_map(
    image: np.ndarray, labels: np.ndarray, classes: Sequence[str], opacity: float = 0.55
) -> tuple[np.ndarray, dict[str, tuple[int, int, int]]]:
    """Lays a label map over an image.

    Args:
        image: (H, W, 3), RGB.
        labels: (H, W), label of each pixel; pixels with a label that no class has stay as they are.
        classes: Name of each label.
        opacity: Of the colours, in [0, 1].

    Returns:
        The picture, (H * f, W * f, 3), and the colour of each class in it, the largest area first.
    """
    picture = enlarge(image)
    height, width = picture.shape[:2]
    areas = np.bincount(labels[(labels >= 0) & (labels < len(classes))].ravel().astype(np.int64))
    present = [int(label) for label in np.argsort(-areas, kind='stable') if areas[label]]
    if not present:
        return picture, {}
    palette = class_palette(len(classes))
    large = imresize(labels.astype(np.uint16), (width, height), interpolation='nearest')
    canvas = Visualizer()
    canvas.set_image(picture)
    colours = {classes[label]: tuple(palette[label]) for label in present}
    masks = np.stack([large == label for label in present])
    canvas.draw_binary_masks(masks, colors=list(colours.values()), alphas=opacity)
    return np.ascontiguousarray(canvas.get_image()), colours


def legend(colours: dict[str, tuple[int, int, int]], height: int) -> np.ndarray:
    """Lists class names beside their colours, in as many columns as ``height`` pixels ask for; (height, w, 3)."""
    font = _font(18)
    row, square, gap = 30, 20, 12
    rows = max(1, (height - gap) // row)
    names = list(colours)
    columns = [names[start : start + rows] for start in range(0, len(names), rows)]
    widths = [math.ceil(max(font.getlength(name) for name in column)) + square + 3 * gap for column in columns]
    panel = Image.new('RGB', (sum(widths), height), PAPER)
    pen = ImageDraw.Draw(panel)
    left = gap
    for column, width in zip(columns, widths):
        for number, name in enumerate(column):
            top = gap // 2 + number * row
            pen.rectangle([left, top + 5, left + square, top + 5 + square], fill=colours[name], outline=INK)
            pen.text((left + square + gap, top + row // 2), name, fill=INK, font=font, anchor='lm')
        left += width
    return np.asarray(panel)


def titled(picture: np.ndarray, title: str) -> np.ndarray:
    """Puts a line of text above a picture, in a smaller type where it would not fit."""
    size = 22
    while _font(size).getlength(title) > picture.shape[1] - 16 and size > 10:
        size -= 1
    band = Image.new('RGB', (picture.shape[1], 40), PAPER)
    ImageDraw.Draw(band).text((picture.shape[1] // 2, 20), title, fill=INK, font=_font(size), anchor='mm')
    return np.concatenate([np.asarray(band), picture])


def beside(pictures: Sequence[np.ndarray], gap: int = 10) -> np.ndarray:
    """Sets pictures side by side, the tops in line."""
    height = max(picture.shape[0] for picture in pictures)
    width = sum(picture.shape[1] for picture in pictures) + gap * (len(pictures) - 1)
    sheet = np.full((height, width, 3), PAPER, np.uint8)
    left = 0
    for picture in pictures:
        sheet[: picture.shape[0], left : left + picture.shape[1]] = picture
        left += picture.shape[1] + gap
    return sheet


def enlarge(image: np.ndarray) -> np.ndarray:
    """Brings the longer side of a small image to `SMALLEST_SIDE`; copies others."""
    factor = SMALLEST_SIDE / max(image.shape[:2])
    if factor <= 1:
        return image.copy()
    height, width = image.shape[:2]
    return imresize(image, (round(width * factor), round(height * factor)), interpolation='bicubic')


def _as_arrays(instances: InstanceData) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Boxes, labels, scores and masks as arrays, whatever MMDetection keeps them in."""
    boxes = getattr(instances.bboxes, 'tensor', instances.bboxes)
    masks = instances.get('masks')
    if masks is not None:
        masks = masks.to_ndarray() if hasattr(masks, 'to_ndarray') else np.asarray(masks)
    scores = instances.get('scores')
    scores = None if scores is None else np.asarray(scores)
    return np.asarray(boxes, dtype=float).reshape(-1, 4), np.asarray(instances.labels), scores, masks


def _write_tags(picture: np.ndarray, texts: list[str], boxes: np.ndarray, colours: list[tuple]) -> np.ndarray:
    """Writes each box's text above it, or where it covers no other text: below, or inside at the top or bottom."""
    height, width = picture.shape[:2]
    font = _font(max(15, max(height, width) // 42))
    line = font.size + 4
    sheet = Image.fromarray(picture)
    pen = ImageDraw.Draw(sheet)
    taken: list[tuple[float, float, float, float]] = []
    for text, (x1, y1, _, y2), colour in zip(texts, boxes, colours):
        length = font.getlength(text) + 6
        left = float(np.clip(x1, 0, max(0, width - length)))
        places = [(left, top) for top in (y1 - line, y2, y1, y2 - line) if 0 <= top <= height - line]
        free = [place for place in places if not any(_overlap((*place, length, line), other) for other in taken)]
        left, top = (free or places or [(left, 0.0)])[0]
        taken.append((left, top, length, line))
        pen.rectangle([left, top, left + length, top + line], fill=colour)
        bright = np.dot(colour, (0.299, 0.587, 0.114)) > 140
        pen.text((left + 3, top + line / 2), text, fill=INK if bright else PAPER, font=font, anchor='lm')
    return np.asarray(sheet)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two rectangles (left, top, width, height) share a point."""
    return all(one[i] < other[i] + other[i + 2] and other[i] < one[i] + one[i + 2] for i in (0, 1))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """The typeface that matplotlib brings along, so that pictures look the same on every machine."""
    return ImageFont.truetype(font_manager.findfont('DejaVu Sans'), size)
