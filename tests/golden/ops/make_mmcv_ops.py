"""Write what mmcv's compiled ops compute on the CPU: `python tests/golden/ops/make_mmcv_ops.py`, with a compiled mmcv.

`mmcv_ops.npz` holds, for each case, the inputs and the outputs under `CASE/NAME`.
"""

import sys
from pathlib import Path

import numpy as np
import torch

FILE = Path(__file__).with_name('mmcv_ops.npz')


def boxes(count: int, kind: str) -> torch.Tensor:
    """Boxes (N, 4) in an image of 80 x 60: 'usual', 'degenerate' (no area, or corners the wrong way), 'outside'."""
    corners = torch.rand(count, 2) * torch.tensor([80, 60])
    sides = torch.rand(count, 2) * 40
    if kind == 'degenerate':
        sides[::3], sides[1::5] = 0, -sides[1::5]
    return torch.cat((corners, corners + sides), dim=1) - (200 if kind == 'outside' else 0)


def case(name: str, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return {f'{name}/{key}': tensor for key, tensor in tensors.items()}


def record() -> dict[str, torch.Tensor]:
    """Run the compiled ops."""
    import mmcv._ext as compiled

    if hasattr(compiled, 'FROM_WHEELS'):
        sys.exit('this mmcv is not compiled: make setup OPS=compiled')
    torch.manual_seed(0)
    data = {}
    for kind in ('usual', 'degenerate'):
        for scores in ('different', 'equal'):
            for offset in (0, 1):
                given, values = boxes(60, kind), torch.rand(60)
                values = (values * 5).round() / 5 if scores == 'equal' else values
                kept = compiled.nms(given, values, iou_threshold=0.5, offset=offset)
                data |= case(f'nms-{kind}-{scores}-{offset}', boxes=given, scores=values, kept=kept)
        given = torch.cat((boxes(40, kind), torch.rand(40, 1)), dim=1)
        groups = compiled.nms_match(given, iou_threshold=0.4)
        lengths = torch.tensor([len(group) for group in groups])
        members = torch.tensor([int(index) for group in groups for index in group])
        data |= case(f'nms_match-{kind}', dets=given, lengths=lengths, groups=members)
    for method in range(3):
        for offset in (0, 1):
            given, values, dets = boxes(40, 'usual'), torch.rand(40), torch.zeros(40, 5)
            options = dict(iou_threshold=0.3, sigma=0.5, min_score=0.05, method=method, offset=offset)
            kept = compiled.softnms(given, values, dets, **options)
            dets = dets[: len(kept)]
            data |= case(f'softnms-{method}-{offset}', boxes=given, scores=values, kept=kept, dets=dets)
    for kind in ('usual', 'outside'):
        for ratio in (0, 2):
            for aligned in (False, True):
                for dtype in ('float32', 'float64', 'float16'):
                    name = f'roi_align-{kind}-{ratio}-{aligned:d}-{dtype}'
                    data |= {
                        f'{name}/{key}': value for key, value in pool(compiled, kind, ratio, aligned, dtype).items()
                    }
    return data


def pool(compiled, kind: str, ratio: int, aligned: bool, dtype: str) -> dict[str, torch.Tensor]:
    """Pool some boxes of two maps, and send a gradient back."""
    dtype = getattr(torch, dtype)
    maps = torch.randn(2, 3, 15, 20).to(dtype)
    rois = torch.cat((torch.randint(0, 2, (8, 1)).float(), boxes(8, kind)), dim=1).to(dtype)
    grad = torch.randn(8, 3, 5, 4).to(dtype)
    out, back, none = torch.zeros_like(grad), torch.zeros_like(maps), maps.new_zeros(0)
    options = dict(aligned_height=5, aligned_width=4, spatial_scale=0.25, sampling_ratio=ratio, pool_mode=1)
    compiled.roi_align_forward(maps, rois, out, none, none, **options, aligned=aligned)
    compiled.roi_align_backward(grad, rois, none, none, back, **options, aligned=aligned)
    return dict(maps=maps, rois=rois, grad=grad, out=out, back=back)


if __name__ == '__main__':
    np.savez_compressed(FILE, **{name: tensor.numpy() for name, tensor in record().items()})
    print(f'wrote {FILE}')
