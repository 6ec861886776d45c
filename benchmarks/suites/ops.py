"""mmcv's ops on torchvision's kernels beside its compiled ones, as a Mask R-CNN at 512 pixels calls them."""

import importlib
from collections.abc import Callable
from types import ModuleType

import torch

from benchmarks.comparison import Comparison, Settings, Side
from mmlape import mmcv_ext, mmcv_ops
from mmlape.errors import StackError

CHANNELS, STRIDE, IMAGE = 256, 4, 512
ROIS = {'box head': (512, 7), 'mask head': (128, 14)}
"""Regions of an image in training, and the side of their maps."""


def compiled() -> ModuleType:
    """Return mmcv's compiled extension.

    Raises:
        StackError: There is none.
    """
    if mmcv_ops.ops_in_use() != mmcv_ops.COMPILED:
        raise StackError('mmcv is not compiled here: make setup OPS=compiled')
    return importlib.import_module('mmcv._ext')


def comparisons(settings: Settings) -> list[Comparison]:
    """Return RoIAlign of both heads, forward and with backward, and NMS of 2,000 boxes."""
    found = []
    for head, (count, side) in ROIS.items():
        shape = f'{count} regions to {side} x {side}, map {CHANNELS} x {IMAGE // STRIDE} x {IMAGE // STRIDE}'
        for backward in (False, True):
            work = 'forward + backward' if backward else 'forward'
            found.append(_comparison(settings, f'RoIAlign, {head}', work, shape, _roi_align(count, side, backward)))
    return [*found, _comparison(settings, 'NMS', 'forward', '2000 boxes', _nms)]


def _comparison(settings: Settings, case: str, work: str, shape: str, call: Callable) -> Comparison:
    def side(get: Callable[[], ModuleType]) -> Callable:
        return lambda: call(get(), settings.device)

    def note() -> str:
        mine, other = (call(get(), settings.device)() for get in (lambda: mmcv_ext, compiled))
        return f'outputs {float((mine - other).abs().max()):.0e} apart'

    sides = [Side('compiled', side(compiled)), Side("torchvision's", side(lambda: mmcv_ext))]
    return Comparison('ops', case, work, shape, 'fp32', sides, counted=False, note=note)


def _boxes(count: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    corners, sides = torch.rand(2, count, 2, generator=generator) * torch.tensor([[[400.0]], [[112.0]]])
    return torch.cat((corners, corners + sides), dim=1).to(device)


def _roi_align(count: int, side: int, backward: bool) -> Callable:
    def call(ext: ModuleType, device: str) -> Callable[[], torch.Tensor]:
        shape = (1, CHANNELS, IMAGE // STRIDE, IMAGE // STRIDE)
        maps = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
        rois = torch.cat((torch.zeros(count, 1, device=device), _boxes(count, device)), dim=1)
        pooled, unused = torch.zeros(count, CHANNELS, side, side, device=device), maps.new_zeros(0)
        window = dict(aligned_height=side, aligned_width=side, spatial_scale=1 / STRIDE, sampling_ratio=0)

        def run() -> torch.Tensor:
            ext.roi_align_forward(maps, rois, pooled, unused, unused, **window, pool_mode=1, aligned=True)
            if not backward:
                return pooled
            grad = torch.zeros_like(maps)
            ext.roi_align_backward(pooled, rois, unused, unused, grad, **window, pool_mode=1, aligned=True)
            return grad

        return run

    return call


def _nms(ext: ModuleType, device: str) -> Callable[[], torch.Tensor]:
    boxes, scores = _boxes(2000, device), torch.linspace(1, 0, 2000, device=device)
    return lambda: ext.nms(boxes, scores, iou_threshold=0.7, offset=0)
