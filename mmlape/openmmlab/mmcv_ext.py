"""mmcv's compiled functions (`mmcv._ext`) that detectors use, on torchvision's kernels, for an mmcv without its ops.

The signatures are those that `mmcv.ops` calls: outputs are written into tensors of the caller. Any
other name is a function that raises when it is called. The file imports nothing of this package,
because `mmlape install-ops` copies it into mmcv's folder, where a compiled extension beside it goes
first by Python's own order.
"""

from collections.abc import Callable
from functools import cache

import torch
import torchvision
from torch import Tensor

FROM_WHEELS = True
"""What tells this module from a compiled one."""


def get_compiler_version() -> str:
    """Return what `mmcv.ops` reports as the compiler."""
    return f'torchvision {torchvision.__version__}'


def get_compiling_cuda_version() -> str:
    """Return the CUDA version that torchvision's kernels are compiled with."""
    return torch.version.cuda or 'not available'


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes (N, 4) to keep, by falling score.

    Boxes of equal score are taken in the order of torch's sort, as by mmcv; torchvision's own order
    is another one.
    """
    order = scores.sort(0, descending=True).indices
    corners = boxes[order].to(_precision(boxes))
    corners = torch.cat((corners[:, :2], corners[:, 2:] + offset), dim=1)
    ranks = torch.arange(len(order), 0, -1, dtype=corners.dtype, device=corners.device)
    return order[torch.ops.torchvision.nms(corners, ranks, iou_threshold)]


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Return groups of boxes (N, 5 with scores): each that NMS keeps, followed by those that it suppresses."""
    boxes, left, groups = dets[:, :4].double(), dets[:, 4].sort(descending=True).indices, []
    while len(left):
        similar = _ious(boxes[left[0]], boxes[left], 0) >= iou_threshold
        similar[0] = True
        groups.append(left[similar].tolist())
        left = left[~similar]
    return groups


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Write boxes with decayed scores into ``dets`` (N, 5), by falling score, and return their indices.

    Each kept box multiplies the scores of the others (Bodla et al., ICCV 2017), by ``method``: 0 by
    zero and 1 by (1 - IoU) from the threshold on, 2 by exp(-IoU^2 / sigma).
    """
    scores, left, kept = scores.clone(), torch.arange(len(boxes)), []
    while len(left):
        best = int(scores[left].argmax())
        chosen = left[best]
        dets[len(kept), :4], dets[len(kept), 4] = boxes[chosen], scores[chosen]
        kept.append(int(chosen))
        left = torch.cat((left[:best], left[best + 1 :]))
        iou = _ious(boxes[chosen], boxes[left], offset)
        if method == 2:
            scores[left] *= torch.exp(-iou.square() / sigma)
        else:
            scores[left] *= torch.where(iou >= iou_threshold, 1 - iou if method == 1 else iou.new_zeros(()), 1)
        left = left[scores[left] >= min_score]
    return torch.tensor(kept, dtype=torch.long)


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the pooled features (K, C, height, width) of rois (K, 5) on maps (B, C, H, W) into ``output``."""
    if pool_mode != 1:
        raise _missing("roi_align with pool_mode='max'")
    precision = _precision(input, torch.float16)
    window = (spatial_scale, aligned_height, aligned_width)
    pooled = torch.ops.torchvision.roi_align(
        input.to(precision), rois.to(precision), *window, max(sampling_ratio, 0), aligned
    )
    output.copy_(pooled)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the gradient of the maps (B, C, H, W) into ``grad_input``."""
    precision = _precision(grad_output, torch.float16)
    window = (spatial_scale, aligned_height, aligned_width)
    grad_input.copy_(
        torch.ops.torchvision._roi_align_backward(
            grad_output.to(precision), rois.to(precision), *window, *grad_input.shape, max(sampling_ratio, 0), aligned
        )
    )


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the focal loss of logits (N, C) into ``output``.

    A target (N,) of C is the background.
    """
    output.copy_(_focal_loss(input, target, weight, gamma, alpha))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Write the gradient of the sum of the losses into ``grad_input`` (N, C)."""
    with torch.enable_grad():
        logits = input.detach().requires_grad_()
        loss = _focal_loss(logits, target, weight, gamma, alpha).sum()
    grad_input.copy_(torch.autograd.grad(loss, logits)[0])


def ms_deform_attn_forward(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, im2col_step: int
) -> Tensor:
    """Return deformable attention (B, Q, heads * d); mmcv itself calls this on CUDA only."""
    return _deformable_attention(value, shapes, starts, locations, weights)


def ms_deform_attn_backward(
    value: Tensor,
    shapes: Tensor,
    starts: Tensor,
    locations: Tensor,
    weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_locations: Tensor,
    grad_weights: Tensor,
    im2col_step: int,
) -> None:
    """Write the gradients of values, locations and weights into the last three tensors."""
    with torch.enable_grad():
        inputs = [tensor.detach().requires_grad_() for tensor in (value, locations, weights)]
        out = _deformable_attention(inputs[0], shapes, starts, *inputs[1:])
    for target, grad in zip(
        (grad_value, grad_locations, grad_weights), torch.autograd.grad(out, inputs, grad_output.contiguous())
    ):
        target.copy_(grad)


def __getattr__(name: str) -> Callable:
    """Return a function for any other op, which raises when it is called."""
    if name.startswith('__'):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise _missing(name)

    return missing


def _missing(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"mmcv's op {name} is not there: mmcv is not compiled, and torchvision has no such kernel. "
        'To compile mmcv: pip install ninja psutil setuptools==79.0.1 && MMCV_WITH_OPS=1 pip '
        'install --no-build-isolation --no-deps --no-cache-dir --force-reinstall onedl-mmcv'
    )


def _precision(tensor: Tensor, *others: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: torchvision's kernels know these alone."""
    return tensor.dtype if tensor.dtype in (torch.float32, torch.float64, *others) else torch.float32


def _ious(box: Tensor, boxes: Tensor, offset: int) -> Tensor:
    """Return the IoU of one box (4,) and each of several (N, 4).

    Of two boxes without area it is 0, not 0 / 0.
    """
    sides = boxes[:, 2:] - boxes[:, :2] + offset
    first = torch.maximum(box[:2], boxes[:, :2])
    last = torch.minimum(box[2:], boxes[:, 2:])
    overlap = (last - first + offset).clamp(min=0).prod(1)
    return (overlap / ((box[2:] - box[:2] + offset).prod() + sides.prod(1) - overlap)).nan_to_num(0)


def _focal_loss(input: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float) -> Tensor:
    classes = torch.arange(input.shape[1], device=input.device)
    truth = (target[:, None] == classes).to(input)
    loss = torchvision.ops.sigmoid_focal_loss(input, truth, alpha, gamma)
    return loss * weight[target][:, None] if weight.numel() else loss


def _deformable_attention(value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
    kernel = _kernel() if value.is_cuda and value.dtype != torch.float64 else None
    if kernel:
        return kernel(value, shapes, starts, locations, weights)
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    return multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)


@cache
def _kernel() -> Callable | None:
    """Return deformops' kernels, which need Python 3.12 or newer; None without them."""
    try:
        from deformops.registry import msda
    except Exception:
        return None
    return msda
