"""The losses of Plain-DETR (2308.01904): focal loss, L1 of differences, and GIoU of boxes matched to objects.

Each layer's boxes are matched to the objects at the least sum of 2 focal, 1 L1 and 2 GIoU costs; the
L1 is between the differences that a box has and that it should have. Hybrid matching (H-DETR,
2207.13080) matches the further queries with each object k times. Sums are divided by the number of
objects.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torchvision.ops import generalized_box_iou, generalized_box_iou_loss, sigmoid_focal_loss

from mmlape.projects.plain_detr.layers import to_corners
from mmlape.projects.plain_detr.net import Boxes, Detections, encode

ALPHA, GAMMA = 0.25, 2.0
"""Of the focal loss."""
WEIGHTS = dict(cls=2.0, bbox=1.0, iou=2.0)
"""Of losses and costs."""


class Objects(NamedTuple):
    """The objects of an image."""

    boxes: Tensor  # (T, 4), x, y, w, h in pixels
    labels: Tensor  # (T,)


@torch.no_grad()
def match(predicted: Boxes, objects: Objects, times: int) -> tuple[Tensor, Tensor]:
    """Return which of the boxes (N, ...) of an image belongs to which object, each so many times."""
    chances = predicted.logits.sigmoid()[:, objects.labels]
    positive = ALPHA * (1 - chances) ** GAMMA * -(chances + 1e-8).log()
    negative = (1 - ALPHA) * chances**GAMMA * -(1 - chances + 1e-8).log()
    wanted = encode(predicted.references[:, None], objects.boxes)  # (N, T, 4)
    cost = WEIGHTS['cls'] * (positive - negative)
    cost = cost + WEIGHTS['bbox'] * (predicted.deltas[:, None] - wanted).abs().sum(-1)
    cost = cost - WEIGHTS['iou'] * generalized_box_iou(to_corners(predicted.boxes), to_corners(objects.boxes))
    # so that a box which is not finite is matched, and the loss is not finite either
    cost = torch.where(cost.isfinite(), cost, -1e30)
    rows, columns = linear_sum_assignment(cost.repeat(1, times).cpu())
    device = objects.labels.device
    return torch.as_tensor(rows, device=device), torch.as_tensor(columns % max(len(objects.labels), 1), device=device)


def losses_of(predicted: Boxes, targets: Sequence[Objects], count: float, times: int = 1) -> dict[str, Tensor]:
    """Return the losses of one stage.

    Args:
        predicted: Boxes of B images.
        targets: The objects of each.
        count: What sums are divided by: the number of objects.
        times: With how many boxes each object is matched.
    """
    # autocast leaves logits in half precision
    predicted = Boxes(*(part.to(torch.promote_types(part.dtype, torch.float32)) for part in predicted))
    images = [Boxes(*parts) for parts in zip(*predicted)]
    pairs = [match(one, objects, times) for one, objects in zip(images, targets, strict=True)]
    wanted = torch.zeros_like(predicted.logits)
    for classes, objects, (rows, columns) in zip(wanted, targets, pairs):
        classes[rows, objects.labels[columns]] = 1.0
    chosen = Boxes(*(torch.cat([part[rows] for part, (rows, _) in zip(each, pairs)]) for each in predicted))
    boxes = torch.cat([objects.boxes[columns] for objects, (_, columns) in zip(targets, pairs)])
    return dict(
        cls=WEIGHTS['cls'] * sigmoid_focal_loss(predicted.logits, wanted, ALPHA, GAMMA, 'sum') / count,
        bbox=WEIGHTS['bbox'] * F.l1_loss(chosen.deltas, encode(chosen.references, boxes), reduction='sum') / count,
        iou=WEIGHTS['iou']
        * generalized_box_iou_loss(to_corners(chosen.boxes), to_corners(boxes), reduction='sum', eps=0.0)
        / count,
    )


def losses(
    found: Detections,
    targets: Sequence[Objects],
    num_queries: int,
    times: int,
    weight: float,
    mean: Callable[[Tensor], Tensor],
) -> Iterator[tuple[str, Tensor]]:
    """Yield names and values of all losses.

    Args:
        found: What the head predicts in training.
        targets: The objects of each image.
        num_queries: How many queries are matched once; the others are matched ``times``.
        times: k of hybrid matching.
        weight: What the losses of hybrid matching are multiplied by.
        mean: Returns the mean of a value over all processes.
    """
    like = found.proposals.logits
    total = mean(like.new_tensor(float(sum(len(objects.labels) for objects in targets))))
    alone, often = (float((total * k).clamp(min=1)) for k in (1, times))
    binary = [Objects(objects.boxes, torch.zeros_like(objects.labels)) for objects in targets]
    stages = {'enc_': (found.proposals, binary, alone, 1, 1.0)}
    for number, layer in enumerate(found.layers):
        prefix = '' if layer is found.layers[-1] else f'd{number}.'
        stages[prefix] = (layer.rows(slice(num_queries)), targets, alone, 1, 1.0)
        if layer.logits.shape[1] > num_queries:
            stages[f'{prefix}many_'] = (layer.rows(slice(num_queries, None)), targets, often, times, weight)
    for prefix, (*stage, factor) in stages.items():
        for name, value in losses_of(*stage).items():
            yield f'{prefix}loss_{name}', factor * value
