"""Rotary position encodings over rows and columns: pairs of channels of queries and keys turn by angles.

With (x_2m, x_2m+1) a pair, y the row and x the column of a patch, and heads of d channels,

    axial    angle_m = y theta^(-4m / d) for the first d/4 pairs, x theta^(-4m / d) for the others   (EVA-02, DINOv3)
    mixed    angle_m = x f_m + y g_m, f and g learnable, of each head and layer            (RoPE for ViT, ECCV 2024)

A pair (a, b) turns to (a cos - b sin, b cos + a sin). A dot product of a turned query and a turned key depends on the
offset of their patches only.

In training, DINOv3 moves normalised coordinates p by numbers that each layer draws anew, for all images of a batch,

    p <- (p + s) j r,   s uniform within +-shift and log j within +-log(jitter) an axis, log r within +-log(rescale)
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, cached_tensor
from mmlape.models.position.base import AttentionPosition, AttentionSlot

PAIRS = ('interleaved', 'half')
"""Neighbouring channels are a pair, or channel m and channel m + d / 2."""


def rotation(angles: Tensor, pairs: str, dtype: torch.dtype) -> Tensor:
    """Return what ``turn`` takes of angles (..., N, d / 2), for products of a real dtype: cosines and sines.

    Complex, (..., N, d / 2); or (2, ..., N, d) for the pairs 'half' and where graphs are recorded.
    """
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    if pairs == 'half':
        return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # neither compilers nor ONNX know complex numbers well
        signed = torch.stack((-sin, sin), dim=-1).flatten(-2)
        return torch.stack((cos.repeat_interleave(2, dim=-1), signed))
    return torch.complex(cos, sin)


def turn(x: Tensor, by: Tensor, pairs: str) -> Tensor:
    """Turn the channels of x (..., N, d) by a ``rotation`` of the same pairs; products have its dtype."""
    if by.is_complex():
        wide = x.to(by.real.dtype)
        wide = wide if wide.stride(-1) == 1 else wide.contiguous()
        turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2))) * by
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)
    wide = x.to(by.dtype)
    other = wide.roll(x.shape[-1] // 2, -1) if pairs == 'half' else wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(wide * by[0], other, by[1]).to(x.dtype)


COORDINATES = ('index', 'normalised')


class Rotary(AttentionPosition, ABC):
    """What both kinds share; a subclass returns its angles."""

    pairs = 'interleaved'

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Check the width of the heads, which must be a multiple of 4."""
        super().attach(attn, slot)
        if attn.head_dims % 4:
            raise ConfigError(
                f'pe_type={self.name!r} halves the channels of a head for rows and columns and '
                f'turns them in pairs: embed_dims / num_heads = {attn.head_dims} must be a '
                'multiple of 4'
            )

    @abstractmethod
    def angles(self, attn: nn.Module, grid: Grid, device: torch.device) -> Tensor:
        """Return the angle of each patch and pair, (1 or heads, N, d / 2)."""

    def rotation(self, attn: nn.Module, grid: Grid, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return what ``turn`` takes for all tokens, no angle for prefix tokens."""
        angles = F.pad(self.angles(attn, grid, device), (0, 0, self.slot.num_prefix, 0))
        return rotation(angles, self.pairs, dtype)

    def rotate(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Turn queries and keys, (B, heads, P + N, d) each; products are in float32 at least."""
        by = self.rotation(attn, grid, q.device, torch.promote_types(q.dtype, torch.float32))
        return turn(q, by, self.pairs), turn(k, by, self.pairs)


class _Axial(NamedTuple):
    """Which angles the patches have; see ``AxialRotary``."""

    theta: float
    coordinates: str
    reference: Grid | None

    def angles(self, head_dims: int, grid: Grid, device: torch.device, move: Callable | None = None) -> Tensor:
        """Return the angles, (1, N, d / 2); ``move`` changes an axis' coordinates from -1 to 1, by its number."""
        quarter = head_dims // 4
        exponents = torch.arange(quarter, dtype=torch.float64, device=device) / quarter
        frequency = self.theta**-exponents
        axes = []
        for axis, side in enumerate(grid):
            index = torch.arange(side, dtype=torch.float64, device=device)
            if self.coordinates == 'normalised':
                index = (2 * index + 1) / side - 1
                index = (index if move is None else move(index, axis)) * 2 * math.pi
            elif self.reference:
                index = index * self.reference[axis] / side
            axes.append(index[:, None] * frequency)  # (side, d / 4)
        rows, columns = axes
        cells = (rows[:, None].expand(-1, grid[1], -1), columns[None].expand(grid[0], -1, -1))
        return torch.cat(cells, dim=-1).flatten(0, 1)[None]


class _Augmentation(NamedTuple):
    """How far coordinates are moved in training; see ``AxialRotary``."""

    shift: float = 0.0
    jitter: float = 1.0
    rescale: float = 1.0

    def draw(self, device: torch.device) -> Callable[[Tensor, int], Tensor]:
        """Draw how the coordinates of both axes move."""
        drawn = torch.empty(5, dtype=torch.float64, device=device).uniform_(-1, 1)
        shift = self.shift * drawn[:2]
        factor = (math.log(self.jitter) * drawn[2:4] + math.log(self.rescale) * drawn[4]).exp()
        return lambda coordinates, axis: (coordinates + shift[axis]) * factor[axis]


@cached_tensor(maxsize=8)
def _axial_rotation(
    axial: _Axial, pairs: str, head_dims: int, grid: Grid, num_prefix: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    angles = F.pad(axial.angles(head_dims, grid, device), (0, 0, num_prefix, 0))
    return rotation(angles, pairs, dtype)


@POSITION_ENCODINGS.register_module('rope')
class AxialRotary(Rotary):
    """Fixed angles; half of the pairs turn with the row, half with the column.

    EVA-02 is ``dict(type='rope', theta=10000, reference=(16, 16))``, DINOv3 ``dict(type='rope',
    coordinates='normalised', pairs='half')``, which it trains with ``rescale=2``. Nothing is interpolated: a larger
    grid has further indices, or normalised coordinates that lie closer together.

    Args:
        theta: Base of the frequencies.
        coordinates: 'index' counts patches from 0; 'normalised' are the patches' centres, from -1 to 1 over each
            side of the grid, times 2 pi.
        reference: Grid that indices are scaled to, (rows, columns); None leaves them as they are.
        pairs: Which channels form a pair: 'interleaved' neighbours, or channel m and channel m + d / 2 ('half').
        shift: Largest shift of normalised coordinates in training, 0 for none.
        jitter: Largest factor of each axis in training, and of its inverse; 1 for none.
        rescale: The same for both axes together.

    Raises:
        ConfigError: For unknown names, a reference beside normalised coordinates, or numbers out of range.
    """

    paper_name = 'RoPE'
    training_arguments = _Augmentation._fields

    def __init__(
        self,
        theta: float = 100.0,
        coordinates: str = 'index',
        reference: Grid | None = None,
        pairs: str = 'interleaved',
        shift: float = 0.0,
        jitter: float = 1.0,
        rescale: float = 1.0,
    ):
        require_choice('coordinates', coordinates, COORDINATES, 'rope: ')
        require_choice('pairs', pairs, PAIRS, 'rope: ')
        if reference and coordinates == 'normalised':
            raise ConfigError("rope: reference scales indices; leave it out with coordinates='normalised'")
        self.coordinates = _Axial(float(theta), coordinates, tuple(reference) if reference else None)
        self.augmentation = _Augmentation(shift, jitter, rescale)
        for (name, value), least in zip(self.augmentation._asdict().items(), _Augmentation()):
            if not least <= value < math.inf:
                raise ConfigError(f'rope: {name}={value} must be {least:g} (none) or more')
        if self.augmentation != _Augmentation() and coordinates != 'normalised':
            names = ', '.join(_Augmentation._fields)
            raise ConfigError(f"rope: {names} need coordinates='normalised'; set it, or leave them out")
        self.pairs = pairs
        # a window's own grid would scale the coordinates
        self.windows = coordinates == 'index' and reference is None

    def augments(self, attn: nn.Module) -> bool:
        """Check whether coordinates are moved, anew each time."""
        return attn.training and self.augmentation != _Augmentation()

    def angles(self, attn: nn.Module, grid: Grid, device: torch.device) -> Tensor:
        """Return the angles, (1, N, d / 2)."""
        move = self.augmentation.draw(device) if self.augments(attn) else None
        return self.coordinates.angles(attn.head_dims, grid, device, move)

    def rotation(self, attn: nn.Module, grid: Grid, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return what ``turn`` takes for all tokens, which no parameter changes."""
        if self.augments(attn):
            return super().rotation(attn, grid, device, dtype)
        of_layer = (attn.head_dims, tuple(grid), self.slot.num_prefix)
        return _axial_rotation(self.coordinates, self.pairs, *of_layer, device, dtype)


@POSITION_ENCODINGS.register_module('rope-mixed')
class MixedRotary(Rotary):
    """Learnable frequencies of columns and rows, (2, heads, d / 2) a layer, which begin at random directions.

    Args:
        theta: Base of the initial lengths.
    """

    paper_name = 'RoPE-Mixed'
    windows = True

    def __init__(self, theta: float = 10.0):
        self.theta = float(theta)

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register ``freqs``."""
        super().attach(attn, slot)
        length = self.theta ** -(torch.arange(0, attn.head_dims, 4) / attn.head_dims)
        angle = 2 * math.pi * torch.rand(attn.num_heads, 1)
        directions = torch.cat((angle.expand(-1, len(length)), (angle + math.pi / 2).expand(-1, len(length))), dim=1)
        length = length.repeat(2)
        attn.register_parameter(
            'freqs', nn.Parameter(torch.stack((length * directions.cos(), length * directions.sin())))
        )

    def angles(self, attn: nn.Module, grid: Grid, device: torch.device) -> Tensor:
        """Return the angles, (heads, N, d / 2)."""
        freqs = attn.freqs if attn.freqs.dtype.itemsize > 2 else attn.freqs.float()
        cells = torch.cartesian_prod(*(torch.arange(side, device=device, dtype=freqs.dtype) for side in grid))
        y, x = cells.unbind(-1)
        return x[:, None] * freqs[0][:, None] + y[:, None] * freqs[1][:, None]  # no matmul, which autocast would round
