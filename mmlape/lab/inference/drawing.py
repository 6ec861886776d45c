"""Drawings of boxes, masks, label maps and classes on their image, with a legend below it.

Lines and text follow the size of the image; those of a small object are thinner. A label that would cover a small box,
or another label, is left out: the legend names its class. Images are (H, W, 3) uint8 arrays in RGB order throughout.
"""

import functools
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
import torch
from matplotlib.font_manager import FontProperties, findfont
from mmengine.structures import BaseDataElement, InstanceData
from PIL import Image, ImageDraw, ImageFont
from pycocotools import mask as coco_mask

from mmlape.errors import DataError
from mmlape.files import write_bytes
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.datasets.formats import datasets_of, resolve_class

MIN_LONGER_SIDE = 640  # pixels, of a drawing
SIDES = ('gt', 'pred')
OPACITY = 0.45  # of masks and label maps
COVERED = 0.1
"""The largest share of a box that a label may cover."""
Colour: TypeAlias = tuple[int, ...]


def draw_sample(
    image: np.ndarray,
    sample: BaseDataElement,
    classes: Sequence[str],
    palette: Sequence[Colour] | None = None,
    score_thr: float = 0.0,
    sides: Sequence[str] = SIDES,
    *,
    labels: bool = True,
    shortest: int = MIN_LONGER_SIDE,
    longest: int | None = None,
    legend_lines: int | None = None,
) -> np.ndarray:
    """Draw the annotations of an image, its prediction, or the first at the left of the second.

    Args:
        image: (H, W, 3), RGB.
        sample: Of MMDetection, MMSegmentation or MMPretrain.
        classes: Name of each label. One of the name 'background' is not filled.
        palette: Colour of each label, as `palette_of` returns it.
        score_thr: Predicted objects with a lower score are left out.
        sides: 'gt', 'pred' or both; what the sample does not have is left out.
        labels: Whether to write the names of classes, at objects and in the legend.
        shortest: Pixels to whose longer side a smaller image is enlarged.
        longest: Pixels to whose longer side a larger image is reduced.
        legend_lines: Lines of the legend, the same whatever there is to name; by default as many as needed.

    Returns:
        (H * f + lines, W * f, 3); of objects and label maps twice as wide for two sides.
    """
    large = resized(image, shortest, longest)
    colours = [tuple(colour) for colour in palette or class_palette(len(classes))]
    panels, named = [], {}
    for side in sides:
        if (objects := sample.get(f'{side}_instances')) is not None:
            shown = objects[objects.scores >= score_thr] if 'scores' in objects else objects
            panel, legend_of = _with_objects(large.copy(), image.shape[:2], shown, classes, colours, labels)
        elif (labelled := sample.get(f'{side}_sem_seg')) is not None:
            panel, legend_of = _with_label_map(large, np.asarray(labelled.data).squeeze(0), classes, colours)
        else:
            named |= _captions(sample, side, classes, colours)
            continue
        panels.append(panel)
        named |= legend_of
    drawn = np.concatenate(panels or [large], axis=1)
    if not labels or not (named or legend_lines):
        return drawn
    return np.concatenate([drawn, legend(named, drawn.shape[1], font_of(large), legend_lines)])


def _with_objects(
    image: np.ndarray,
    size: Sequence[int],
    objects: InstanceData,
    classes: Sequence[str],
    colours: Sequence[Colour],
    labels: bool,
) -> tuple[np.ndarray, dict[str, Colour]]:
    """Draw boxes and masks, those of large objects below, and the labels for which there is room.

    Return the image and the classes that the legend is to name. ``size`` is that of the image in its file.
    """
    height, width = image.shape[:2]
    boxes = torch.as_tensor(getattr(objects.bboxes, 'tensor', objects.bboxes))
    boxes = boxes.reshape(-1, 4).double().numpy().copy()
    boxes *= np.tile((width / size[1], height / size[0]), 2)
    kinds = np.asarray(objects.labels).tolist()
    inks = [colours[kind] for kind in kinds]
    order = np.argsort(-(boxes[:, 2:] - boxes[:, :2]).prod(1), kind='stable')
    if 'masks' in objects:
        image = _with_masks(image, size, getattr(objects.masks, 'masks', objects.masks), inks, boxes, order)
    line = max(2, round(max(height, width) / 500))
    for place in order:
        _frame(image, boxes[place], inks[place], line)
    if not labels:
        return image, {}
    scores = [f' {score:.2f}' for score in objects.scores.tolist()] if 'scores' in objects else [''] * len(boxes)
    texts = [f'{classes[kind]}{score}' for kind, score in zip(kinds, scores)]
    font = font_of(image)
    sizes = np.array([_extent(text, font) for text in texts]).reshape(-1, 2)
    spots = place_labels(boxes, sizes, (height, width), line)
    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas)
    named = {}
    for text, ink, spot, kind in zip(texts, inks, spots, kinds):
        if spot is None:
            named[classes[kind]] = ink
        else:
            draw.rectangle((*spot[:2], spot[2] - 1, spot[3] - 1), ink)
            draw.text((spot[0] + font.size // 4, spot[1]), text, _contrast(ink), font)
    return np.array(canvas), named


def _with_masks(
    image: np.ndarray,
    size: Sequence[int],
    masks: Sequence,
    inks: Sequence[Colour],
    boxes: np.ndarray,
    order: np.ndarray,
) -> np.ndarray:
    """Fill masks, one after the other in memory; a box that is missing becomes its mask's."""
    layer, shape = image.copy(), image.shape[1::-1]
    for place in order:
        mask = cv2.resize(pixels_of(masks[place], size), shape, interpolation=cv2.INTER_NEAREST)
        left, top, width, height = cv2.boundingRect(mask)
        if (boxes[place, 2:] <= boxes[place, :2]).any():
            boxes[place] = left, top, left + width, top + height
        area = slice(top, top + height), slice(left, left + width)
        layer[area][mask[area] > 0] = inks[place]
    return cv2.addWeighted(layer, OPACITY, image, 1 - OPACITY, 0)


def _with_label_map(
    image: np.ndarray, values: np.ndarray, classes: Sequence[str], colours: Sequence[Colour]
) -> tuple[np.ndarray, dict[str, Colour]]:
    """Fill the classes, but for what is no class or the background; return the image and the classes that it shows."""
    values = cv2.resize(values.astype(np.uint16), image.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    known = [label for label in np.unique(values) if label < len(classes)]
    filled = [label for label in known if not is_background(classes[label])]
    layer = np.asarray([*colours, (0, 0, 0)], np.uint8)[np.minimum(values, len(colours))]
    mixed = cv2.addWeighted(layer, OPACITY, image, 1 - OPACITY, 0)
    shown = np.where(np.isin(values, filled)[..., None], mixed, image)
    return shown, {classes[label]: colours[label] for label in filled}


def _captions(sample: BaseDataElement, side: str, classes: Sequence[str], colours: Sequence[Colour]) -> dict:
    """Return the text of a classification's side with its colour; none of a side that the sample does not have."""
    places = np.atleast_1d(np.asarray(sample.get(f'{side}_label', []))).tolist()
    if not places:
        return {}
    names = ', '.join(str(classes[place]) for place in places)
    if side == 'gt':
        return {f'true: {names}': colours[places[0]]}
    score = f' {float(sample.pred_score.max()):.2f}' if 'pred_score' in sample else ''
    return {f'predicted: {names}{score}': colours[places[0]]}


def palette_of(cfg: Mapping, classes: Sequence[str], split: str = 'test') -> list[Colour]:
    """Return the colours of classes: those that the data has for them, if for each, else distinct hues.

    Args:
        cfg: A config, the ``metainfo`` or the class of whose dataset may have a palette.
        classes: The names.
        split: Of the dataset.
    """
    dataset = next(iter(datasets_of(cfg, split)), {})
    kind = resolve_class(dataset.get('type'), cfg.get('default_scope'), 'DATASETS')
    own: dict[str, Colour] = {}
    for known in (getattr(kind, 'METAINFO', {}), dataset.get('metainfo') or {}):
        names = known.get('classes')  # or the file that has them
        listed = names if names and not isinstance(names, str) else classes
        own |= zip(listed, map(tuple, known.get('palette') or ()))
    colours = map(tuple, class_palette(len(classes)))
    return [own[name] for name in classes] if own.keys() >= set(classes) else list(colours)


def is_background(name: str) -> bool:
    """Return whether a class is what is left between the others, as VOC and annotation tools name it."""
    return name.strip('_ ').casefold() == 'background'


def pixels_of(mask: Any, size: Sequence[int]) -> np.ndarray:
    """Return a mask as (H, W), 0 and 1, uint8, also one of polygons or of COCO's run lengths."""
    if isinstance(mask, list):
        mask = coco_mask.merge(coco_mask.frPyObjects([np.ravel(part).tolist() for part in mask], *size))
    elif isinstance(mask, dict) and isinstance(mask['counts'], list):
        mask = coco_mask.frPyObjects(mask, *size)
    return coco_mask.decode(mask) if isinstance(mask, dict) else np.asarray(mask).astype(np.uint8)


def _frame(image: np.ndarray, box: np.ndarray, ink: Colour, line: int) -> None:
    """Draw a frame around a box, where the image has room outside; its line is at most a tenth of the box."""
    height, width = image.shape[:2]
    line = int(np.clip((box[2:] - box[:2]).min() / 10, 1, line))
    low, high = np.floor(box[:2]).clip(line), np.ceil(box[2:]).clip(max=(width - line, height - line))
    for ring in range(line):
        corners = (low - 1 - ring).astype(int).tolist(), (high + ring).astype(int).tolist()
        cv2.rectangle(image, *corners, ink, 1)


def place_labels(
    boxes: np.ndarray, sizes: np.ndarray, size: tuple[int, int], line: int
) -> list[tuple[int, int, int, int] | None]:
    """Return where the label of each box lies, left, top, right and bottom; None for those without room.

    No label leaves the image, meets another, or covers more than `COVERED` of a box. If a third of the
    boxes has no room for theirs, none has.

    Args:
        boxes: (N, 4), in pixels of the image; the first ones choose first.
        sizes: Width and height of the labels.
        size: Height and width of the image.
        line: The width of the boxes' frames.
    """
    places: list[tuple[int, int, int, int] | None] = []
    taken = np.zeros((0, 4))
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for (left, top, right, bottom), (width, height) in zip(boxes, sizes):
        x = np.clip(left - line, 0, max(size[1] - width, 0))
        spots = (
            (x, top - height - line),
            (right + line - width, top - height - line),
            (x, bottom + line),
            (left, top),
        )
        for spot in spots:
            corners = np.floor(spot).astype(int)
            corners = np.concatenate([corners, corners + (width, height)])
            inside = (corners[:2] >= 0).all() and (corners[2:] <= size[::-1]).all()
            if inside and not _shared(corners, taken).any() and (_shared(corners, boxes) <= COVERED * areas).all():
                taken = np.concatenate([taken, corners[None]])
                places.append(tuple(corners.tolist()))
                break
        else:
            places.append(None)
            if 3 * (len(places) - len(taken)) > len(boxes):
                return [None] * len(boxes)
    return places


def _shared(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the areas that a box shares with others."""
    return (np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])).clip(0).prod(1)


def legend(named: Mapping[str, Colour], width: int, font: ImageFont.FreeTypeFont, lines: int | None) -> np.ndarray:
    """Return names beside their colours, (h, width, 3), in as many lines as they need, or those that fit into some."""
    side, space, rows = font.size, font.size // 2, [[]]
    x, height = space, 2 * font.size
    for name, ink in named.items():
        needed = side + space + round(font.getlength(name))
        if rows[-1] and x + needed + space > width:
            rows.append([])
            x = space
        rows[-1].append((x, name, ink))
        x += needed + 2 * space
    canvas = Image.new('RGB', (width, height * (lines or len(rows))), 'white')
    draw = ImageDraw.Draw(canvas)
    for number, row in enumerate(rows[:lines]):
        y = number * height + space
        for x, name, ink in row:
            draw.rectangle((x, y, x + side - 1, y + side - 1), ink)
            draw.text((x + side + space, number * height + height // 2), name, 'black', font, 'lm')
    return np.asarray(canvas)


def font_of(image: np.ndarray) -> ImageFont.FreeTypeFont:
    """Return the font for an image: that of figures, a sixtieth of the longer side, of at least 12 pixels."""
    return _font(max(12, round(max(image.shape[:2]) / 60)))


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(findfont(FontProperties()), size)


def _extent(text: str, font: ImageFont.FreeTypeFont) -> tuple[int, int]:
    """Return width and height of a label."""
    return round(font.getlength(text)) + font.size // 2, sum(font.getmetrics())


def _contrast(colour: Colour) -> str:
    """Return the ink that is legible on a colour, by its luma."""
    red, green, blue = colour
    return 'black' if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else 'white'


def resized(image: np.ndarray, shortest: int = MIN_LONGER_SIDE, longest: int | None = None) -> np.ndarray:
    """Enlarge a small image to a longer side of ``shortest``, reduce a large one to ``longest``; copy others."""
    side = max(image.shape[:2])
    factor = min(max(shortest, side), longest or np.inf) / side
    if factor == 1:
        return np.ascontiguousarray(image)
    height, width = (max(round(length * factor), 1) for length in image.shape[:2])
    method = cv2.INTER_CUBIC if factor > 1 else cv2.INTER_AREA
    return cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=method)


@functools.cache
def image_suffixes() -> frozenset[str]:
    """Return the suffixes of the images that can be written, such as '.png'."""
    Image.init()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in Image.SAVE)


def drawing_name(name: Path) -> Path:
    """Return the name that the drawing of an image has: its own where Pillow writes that format, else PNG's."""
    return name if name.suffix.lower() in image_suffixes() else name.with_suffix('.png')


def write_image(image: np.ndarray, path: str | Path) -> None:
    """Write an image, in the format of the path's suffix.

    Raises:
        DataError: It cannot be written.
    """
    suffix, encoded = Path(path).suffix.lower(), io.BytesIO()
    if suffix not in image_suffixes():
        raise DataError(f'{path}: an image needs a suffix such as .png or .jpg, not {suffix!r}')
    try:
        Image.fromarray(image).save(encoded, Image.registered_extensions()[suffix], quality=90)
        write_bytes(path, encoded.getvalue())
    except (OSError, ValueError) as error:
        reason = getattr(error, 'strerror', None) or error
        raise DataError(f'cannot write {path}: {reason}') from error
