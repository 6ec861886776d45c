"""The operator of the graphs of detectors: non-maximum suppression with a fixed number of boxes."""

from collections.abc import Callable

import torch
import torchvision
from torch import Tensor


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest scores (..., count) of rows and their places, equal ones in their order.

    ONNX's TopK keeps the order of equal values; torch's does not.
    """
    if torch.compiler.is_compiling():  # also in an export, which knows no stable sort
        return scores.topk(count)
    found, places = scores.sort(descending=True, stable=True)
    return found[..., :count], places[..., :count]


@torch.library.custom_op('mmlape::best_boxes', mutates_args=())
def best_boxes(
    boxes: Tensor, scores: Tensor, iou: float, least: float, count: int, by_place: bool
) -> tuple[Tensor, Tensor]:
    """Suppress overlapping boxes within each group, and return the best ones of all groups of an image.

    Of equal scores in a group, the first is the better one.

    Args:
        boxes: (B, G, N, 4), left, top, right, bottom.
        scores: (B, G, N).
        iou: Of two boxes that overlap more, the better one stays.
        least: Boxes need a higher score.
        count: How many boxes are returned of an image.
        by_place: Of equal scores in several groups, the place in the group decides, then the group;
            else the group comes first.

    Returns:
        Places in (G * N), (B, count), by falling score, and the scores; behind the last box places
        are 0 and scores -1.
    """
    found = [_best_of_image(*one, iou, least, count, by_place) for one in zip(boxes, scores)]
    places, best = (torch.stack(parts) for parts in zip(*found))
    return places, best


def _best_of_image(
    boxes: Tensor, scores: Tensor, iou: float, least: float, count: int, by_place: bool
) -> tuple[Tensor, Tensor]:
    kept = []
    for group, (corners, row) in enumerate(zip(boxes, scores)):
        places = (row > least).nonzero()[:, 0]
        # equal scores in their order: torchvision's own is another one
        places = places[row[places].argsort(descending=True, stable=True)]
        ranks = torch.arange(len(places), 0, -1, dtype=boxes.dtype, device=boxes.device)
        kept.append(group * boxes.shape[1] + places[torchvision.ops.nms(corners[places], ranks, iou)])
    places = torch.cat(kept)
    if by_place:
        places = places[(places % boxes.shape[1] * len(boxes) + places // boxes.shape[1]).argsort()]
    found = scores.flatten()[places]
    found, order = largest(torch.cat((found, found.new_full((count,), -1.0))), count)
    return torch.cat((places, places.new_zeros(count)))[order], found


@best_boxes.register_fake
def _(boxes: Tensor, scores: Tensor, iou: float, least: float, count: int, by_place: bool) -> tuple[Tensor, Tensor]:
    shape = (scores.shape[0], count)
    return scores.new_empty(shape, dtype=torch.long), scores.new_empty(shape)


def translations() -> dict[Callable, Callable]:
    """Return ONNX's form of what torch's exporter does not know."""
    return {torch.ops.mmlape.best_boxes.default: _best_boxes}


def _best_boxes(boxes, scores, iou: float, least: float, count: int, by_place: bool):
    """Write NonMaxSuppression with images and groups as its batch, and TopK over the scores that it keeps.

    They stand in a row for each image, in the order that decides between equal ones; all others are -1.
    """
    from onnxscript import opset18 as op

    _, groups, length, _ = boxes.shape

    def number(value: int):
        return op.Constant(value_int=value)

    kept = op.NonMaxSuppression(
        op.Reshape(boxes, [-1, length, 4]),
        op.Reshape(scores, [-1, 1, length]),
        op.Constant(value_ints=[length]),
        op.Constant(value_floats=[iou]),
        op.Constant(value_floats=[least]),
    )  # rows of image and group, 0, place in the group
    row, place = (op.Gather(kept, number(column), axis=1) for column in (0, 2))
    flat = op.Reshape(scores, [-1])
    value = op.Gather(flat, op.Add(op.Mul(row, number(length)), place))
    if by_place:
        image, group = op.Div(row, number(groups)), op.Mod(row, number(groups))
        inside = op.Add(op.Mul(place, number(groups)), group)
        index = op.Add(op.Mul(image, number(groups * length)), inside)
    else:
        index = op.Add(op.Mul(row, number(length)), place)
    empty = op.Expand(op.Constant(value_float=-1.0), op.Shape(flat))
    rows = op.Reshape(op.ScatterElements(empty, index, value, axis=0), [-1, groups * length])
    if groups * length < count:
        missing = count - groups * length
        rows = op.Pad(rows, [0, 0, 0, missing], op.Constant(value_float=-1.0))
    best, order = op.TopK(rows, op.Constant(value_ints=[count]))
    if by_place:
        inside = op.Mul(op.Mod(order, number(groups)), number(length))
        order = op.Add(inside, op.Div(order, number(groups)))
    found = op.Greater(best, op.Constant(value_float=0.0))
    return op.Where(found, order, number(0)), best
