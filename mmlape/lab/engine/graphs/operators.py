"""Operators of the graphs: non-maximum suppression with a fixed number of boxes, and sampling without GridSample."""

from collections.abc import Callable

import torch
import torchvision
from torch import Tensor


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest scores (count,) and their places, equal ones in their order.

    ONNX's TopK keeps the order of equal values; torch's does not.
    """
    if torch.compiler.is_compiling():  # also in an export, which knows no stable sort
        return scores.topk(count)
    found, places = scores.sort(descending=True, stable=True)
    return found[:count], places[:count]


@torch.library.custom_op('mmlape::best_boxes', mutates_args=())
def best_boxes(
    boxes: Tensor, scores: Tensor, iou: float, least: float, count: int, by_place: bool
) -> tuple[Tensor, Tensor]:
    """Suppress overlapping boxes within each group, and return the best ones of all groups.

    Of equal scores in a group, the first is the better one.

    Args:
        boxes: (G, N, 4), left, top, right, bottom.
        scores: (G, N).
        iou: Of two boxes that overlap more, the better one stays.
        least: Boxes need a higher score.
        count: How many boxes are returned.
        by_place: Of equal scores in several groups, the place in the group decides, then the group;
            else the group comes first.

    Returns:
        Places in (G * N), (count,), by falling score, and the scores; behind the last box places
        are 0 and scores -1.
    """
    kept = []
    for group, (corners, row) in enumerate(zip(boxes, scores)):
        places = (row > least).nonzero()[:, 0]
        # equal scores in their order: torchvision's own is another one
        places = places[row[places].argsort(descending=True, stable=True)]
        ranks = torch.arange(len(places), 0, -1, dtype=boxes.dtype, device=boxes.device)
        kept.append(
            group * boxes.shape[1] + places[torchvision.ops.nms(corners[places], ranks, iou)]
        )
    places = torch.cat(kept)
    if by_place:
        places = places[(places % boxes.shape[1] * len(boxes) + places // boxes.shape[1]).argsort()]
    found = scores.flatten()[places]
    found, order = largest(torch.cat((found, found.new_full((count,), -1.0))), count)
    return torch.cat((places, places.new_zeros(count)))[order], found


@best_boxes.register_fake
def _(
    boxes: Tensor, scores: Tensor, iou: float, least: float, count: int, by_place: bool
) -> tuple[Tensor, Tensor]:
    return scores.new_empty(count, dtype=torch.long), scores.new_empty(count)


def translations() -> dict[Callable, Callable]:
    """Return ONNX's form of operators that torch's exporter does not know, or turns into GridSample."""
    return {
        torch.ops.mmlape.best_boxes.default: _best_boxes,
        torch.ops.aten.grid_sampler.default: _grid_sampler,
        torch.ops.aten.grid_sampler_2d.default: _grid_sampler,
    }


def _best_boxes(boxes, scores, iou: float, least: float, count: int, by_place: bool):
    """Write NonMaxSuppression with the groups as its batch, and TopK over what is left and ``count`` empty boxes."""
    from onnxscript import opset18 as op

    length = boxes.shape[1]
    limit = op.Constant(value_ints=[length])
    kept = op.NonMaxSuppression(
        boxes,
        op.Unsqueeze(scores, [1]),
        limit,
        op.Constant(value_floats=[iou]),
        op.Constant(value_floats=[least]),
    )  # rows of group, 0, place in the group
    group, place = (op.Gather(kept, op.Constant(value_int=column), axis=1) for column in (0, 2))
    places = op.Add(op.Mul(group, limit), place)
    if by_place:
        rank = op.Add(op.Mul(place, op.Constant(value_ints=[boxes.shape[0]])), group)
        _, order = op.TopK(rank, op.Shape(rank), largest=0)
        places = op.Gather(places, order)
    found = op.Gather(op.Reshape(scores, [-1]), places)
    found = op.Concat(found, op.Constant(value_floats=[-1.0] * count), axis=0)
    best, order = op.TopK(found, op.Constant(value_ints=[count]))
    padded = op.Concat(places, op.Constant(value_ints=[0] * count), axis=0)
    return op.Gather(padded, order), best


def _grid_sampler(input, grid, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """Write bilinear sampling with zeros outside as four gathers of rows, each weighted by its distance.

    Of maps (B, C, H, W) at places (B, P, Q, 2) in [-1, 1].
    """
    from onnxscript import opset18 as op

    if (interpolation_mode, padding_mode, align_corners) != (0, 0, False):
        raise NotImplementedError(
            'grid_sample other than bilinear, with zeros outside and align_corners=False'
        )
    batch, channels, rows, columns = input.shape
    x, y = (op.Gather(grid, op.Constant(value_int=axis), axis=3) for axis in (0, 1))  # (B, P, Q)
    cells = op.Reshape(op.Transpose(input, perm=[0, 2, 3, 1]), [-1, channels])  # (B*H*W, C)
    first = op.Constant(value=_first_rows(batch, rows * columns))  # of each map, (B, 1, 1)

    def number(value: float):
        return op.Constant(value_float=float(value))

    def axis(position, size: int):
        """Return weight and clamped index of the two cells around each position.

        Weights outside are 0.
        """
        at = op.Sub(op.Mul(op.Add(position, number(1)), number(size / 2)), number(0.5))
        low = op.Floor(at)
        share = op.Sub(at, low)
        for weight, index in ((op.Sub(number(1), share), low), (share, op.Add(low, number(1)))):
            clamped = op.Clip(index, number(0), number(size - 1))
            inside = op.Cast(op.Equal(clamped, index), to=1)
            yield op.Mul(weight, inside), op.Cast(clamped, to=7)

    total = None
    across = list(axis(x, columns))
    for down, row in axis(y, rows):
        start = op.Add(op.Mul(row, op.Constant(value_int=columns)), first)
        for weight, column in across:
            values = op.Gather(cells, op.Add(start, column), axis=0)  # (B, P, Q, C)
            part = op.Mul(values, op.Unsqueeze(op.Mul(weight, down), [3]))
            total = part if total is None else op.Add(total, part)
    return op.Transpose(total, perm=[0, 3, 1, 2])


def _first_rows(batch: int, cells: int):
    import onnx

    return onnx.numpy_helper.from_array((torch.arange(batch) * cells).view(-1, 1, 1).numpy())
