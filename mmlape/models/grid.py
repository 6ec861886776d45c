"""Grids of tokens: their sizes, the layout of maps, the one resize of values on a grid, and tensors kept by size."""

import math
from collections.abc import Callable
from functools import lru_cache, wraps

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode

from mmlape.errors import ConfigError, DataError

Grid = tuple[int, int]
"""(rows, columns)"""
OFFSET = 0.1
"""What DINOv2 adds to the sides of a grid before it computes the scale to it."""
_SMOOTH = ('bilinear', 'bicubic')
RESIZE_MODES = (*_SMOOTH, *(f'{mode}-{how}' for mode in _SMOOTH for how in ('corners', 'offset', 'antialias')))
RESIZE_MODES += ('nearest', 'nearest-exact', 'area', 'tile')
"""Modes of ``resize_map``, and 'tile' for ``tile_map``."""
_OF_AVX2 = torch.backends.cpu.get_cpu_capability() == 'AVX2'


def ceil_div(dividend: int, divisor: int) -> int:
    """Ceiling division; torch.compile needs non-negative terms."""
    return (dividend + divisor - 1) // divisor


def square_grid(cells: int) -> Grid | None:
    """Return the square grid of so many cells; None if there is none."""
    side = math.isqrt(max(cells, 0))
    return (side, side) if side and side * side == cells else None


def require_patch(x: Tensor, size: int) -> None:
    """Check the sides of images (B, C, H, W).

    Raises:
        DataError: If one is smaller than a patch.
        ConfigError: If a graph is exported with sides that it is to leave open.
    """
    height, width = x.shape[-2:]
    is_open = isinstance(height, torch.SymInt) or isinstance(width, torch.SymInt)
    # which torch has from 2.7 on; before, it says itself that a side has been made a constant
    if is_open and getattr(torch.compiler, 'is_exporting', bool)():
        raise ConfigError(
            'dynamic_shapes leaves height or width of the images open, and an exported graph has '
            'one size of images: name the batch only, and export a graph for each size'
        )
    if height < size or width < size:
        raise DataError(
            f'an image of {height}x{width} pixels is smaller than one patch of {size}x{size}: '
            "enlarge it, or the sizes of the pipeline's resize"
        )


def require_multiple(x: Tensor, size: int) -> None:
    """Raise DataError if a side of images (B, C, H, W) is no multiple of ``size``."""
    height, width = x.shape[-2:]
    if height % size or width % size:
        raise DataError(
            f'images of {height}x{width} pixels: an adapter over patches of 14 pixels takes sides '
            f'that are multiples of {size}; train on crops of such a side, and test in windows '
            f"(test_cfg=dict(mode='slide', crop_size=({4 * size}, {4 * size}), ...))"
        )


def pad_to_multiple(x: Tensor, size: int, center: bool = False) -> Tensor:
    """Pad the last two axes with zeros, at their ends or on both sides, to multiples of ``size``.

    In the center, an odd row or column is added at the end.
    """
    height, width = x.shape[-2:]
    rows, columns = ceil_div(height, size) * size - height, ceil_div(width, size) * size - width
    top, left = (rows // 2, columns // 2) if center else (0, 0)
    return F.pad(x, (left, columns - left, top, rows - top))


def resize_map(values: Tensor, src: Grid, dst: Grid, mode: str) -> Tensor:
    """Resize (rows * columns, C) values on a grid ``src`` to a grid ``dst``, by size.

    The mode is PyTorch's; 'bilinear-corners' and 'bicubic-corners' keep the values of the corners;
    'bicubic-offset' is DINOv2's, which scales by (side + 0.1) / side, so that values move a little
    towards the first row and column; 'bicubic-antialias' is timm's. It is computed in float32 at
    least: PyTorch has no antialiased one in half precision.
    """
    wide = torch.promote_types(values.dtype, torch.float32)
    image = values.to(wide).t().reshape(1, -1, *src)  # (1, C, rows, columns)
    corners = None if mode in ('nearest', 'nearest-exact', 'area') else mode.endswith('-corners')
    offset = mode.endswith('-offset')
    size: dict = dict(size=dst)
    if offset:
        size = dict(scale_factor=[(new + OFFSET) / old for old, new in zip(src, dst)])
    antialias = mode.endswith('-antialias')
    mode = mode.removesuffix('-corners').removesuffix('-offset').removesuffix('-antialias')
    resized = F.interpolate(image, **size, mode=mode, align_corners=corners, antialias=antialias)
    return resized[0].flatten(1).t().to(values.dtype)


def tile_map(values: Tensor, src: Grid, dst: Grid) -> Tensor:
    """Repeat (rows * columns, C) values on a grid ``src`` to cover a grid ``dst``."""
    repeats = [ceil_div(have, side) for side, have in zip(src, dst)]
    tiled = values.unflatten(0, src).repeat(*repeats, 1)  # (rows, columns, C)
    return tiled[: dst[0], : dst[1]].flatten(0, 1)


def to_maps(tokens: Tensor, grid: Grid) -> Tensor:
    """View tokens (B, N, C) of a grid as maps (B, C, rows, columns)."""
    return tokens.transpose(1, 2).unflatten(-1, grid)


def partition(x: Tensor, window: int) -> Tensor:
    """Cut maps (B, H, W, C) of complete windows into (B * windows, N, C)."""
    x = x.unflatten(2, (-1, window)).unflatten(1, (-1, window))
    return x.transpose(2, 3).flatten(0, 2).flatten(1, 2)


def assemble(windows: Tensor, grid: Grid, window: int) -> Tensor:
    """Put windows (B * windows, N, C) together to maps (B, H, W, C)."""
    rows, columns = (side // window for side in grid)
    x = windows.unflatten(1, (window, window)).unflatten(0, (-1, rows, columns))
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def channels_last(x: Tensor) -> Tensor:
    """Lay maps (B, C, H, W) out with channels last in memory, under the strides that such a tensor has.

    A view of tokens is laid out so already, but at batch 1 its batch stride is arbitrary; torch's
    batch norm then takes the layout for another one in its backward, and gradients are wrong
    without an error.
    """
    if torch._C._are_functorch_transforms_active():  # vmap knows no such format of a clone
        return contiguous(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    _, channels, height, width = x.shape
    if x.stride() == (height * width * channels, 1, width * channels, channels):
        return x
    return x.clone(memory_format=torch.channels_last)


def convolution_layout(device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return what lays maps (B, C, H, W) out as convolutions are fastest on a device.

    Channels last, but for training on a processor of AVX2: oneDNN's gradients of a 3x3 convolution take 1.5 times as
    long there. ``torch.func`` has channels last everywhere: its second derivatives of the other layout are wrong in
    torch 2.15 for one image.
    """
    transformed = torch._C._are_functorch_transforms_active()
    slow = _OF_AVX2 and device.type == 'cpu' and torch.is_grad_enabled() and not transformed
    return contiguous if slow else channels_last


def contiguous(x: Tensor) -> Tensor:
    """Copy maps into a new tensor whose strides are regular at batch 1 too, for whatever layer follows."""
    return x.clone(memory_format=torch.contiguous_format)


def heads_together(x: Tensor) -> Tensor:
    """Return heads (B, heads, N, d) side by side, (B, N, heads * d).

    An exported graph gets a copy: exporters replace attention by operations that leave another
    layout, of which the heads are no view.
    """
    x = x.transpose(1, 2)
    exporting = getattr(torch.compiler, 'is_exporting', bool)()
    return (contiguous(x) if exporting else x).flatten(2)


def is_recorded() -> bool:
    """Check whether operations are recorded (compilers, exports, fake tensors) or transformed (``torch.func``)."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing() or is_in_torch_dispatch_mode()
    return recorded or torch._C._are_functorch_transforms_active()


def cached_tensor(maxsize: int) -> Callable[[Callable], Callable]:
    """Keep the last ``maxsize`` results of a function of hashable arguments, such as indices and angles of a grid.

    Where operations are recorded or transformed, results are built anew: their tensors must not
    outlive them.
    """

    def decorate(build: Callable) -> Callable:
        @lru_cache(maxsize)
        def keep(*args):
            # a kept tensor must be an ordinary one, also if the first call is in inference mode
            with torch.inference_mode(False), _disable_current_modes():
                return build(*args)

        @wraps(build)
        def call(*args):
            if is_recorded():
                return build(*args)
            return keep(*args)

        call.cache_clear, call.cache_info = keep.cache_clear, keep.cache_info
        return call

    return decorate
