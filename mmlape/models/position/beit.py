"""BEiT's bias on the logits (ICLR 2022, section 2.3): a table of offsets as Swin's, with entries of the class token.

    logits(i, j) += table[row_i - row_j, column_i - column_j]

for patches i and j; a pair with the class token has one of three entries behind the offsets: the token as query, the
token as key, and both. A table is resized as BEiT's and ViT-Adapter's public code does it: with n the largest offset
of its side and m that of the new one, offset k of the table lies at the coordinate 1 + q + ... + q^(k - 1), negative
ones at its negative, where q in [1.01, 1.5] takes offset n to m. A cubic spline through these points is read at the
new offsets -m, ..., m. So the steps are fine where offsets are small.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, cached_tensor
from mmlape.models.position.base import AttentionSlot
from mmlape.models.position.relative_bias import (
    CLASS_ENTRIES,
    TABLE,
    OffsetBias,
    grid_of_offsets,
    has_class_entries,
    is_beits,
    offset_index,
)

RATIOS = (1.01, 1.5)
"""Between which the ratio of two steps is."""


def step_ratio(offsets: int, largest: int) -> float:
    """Return q, with which the coordinate of the last of some offsets is ``largest``, as far as ``RATIOS`` allow.

    Bisection to 1e-6, whose last middle counts: 19 steps.
    """
    (low, high), ratio = RATIOS, 0.0
    for _ in range(19):
        ratio = (low + high) / 2
        reached = (ratio**offsets - 1) / (ratio - 1)
        low, high = (low, ratio) if reached > largest else (ratio, high)
    return ratio


def _spline(src: int, dst: int) -> Tensor:
    """Return what ``_kept_spline`` does, as a tensor; compilers cannot follow SciPy."""
    return torch.from_numpy(_kept_spline(src, dst))


# what torch.compiler.assume_constant_result sets, which takes seconds to import the compiler first
_spline._dynamo_marked_constant = True


@lru_cache(64)
def _kept_spline(src: int, dst: int) -> np.ndarray:
    """Return what maps the offsets of a side of ``src`` patches to those of ``dst``, (2 dst - 1, 2 src - 1)."""
    if src == 1:
        return np.ones((2 * dst - 1, 1))
    try:
        from scipy.interpolate import make_interp_spline
    except ImportError as error:
        raise ConfigError(
            f"pe_type='beit': splines of SciPy resize a bias of {src} patches a side to {dst}: pip install scipy"
        ) from error
    positive = np.cumsum(step_ratio(src - 1, dst - 1) ** np.arange(src - 1))
    points = np.concatenate((-positive[::-1], [0], positive))
    read = np.arange(1 - dst, dst).clip(points[0], points[-1])
    degree = 3 if len(points) > 3 else 1
    return make_interp_spline(points, np.eye(len(points)), degree)(read)


def resize_offsets(table: Tensor, src: Grid, dst: Grid) -> Tensor:
    """Resize the offsets ((2 h - 1) (2 w - 1), heads) of a grid to those of another one, in double precision.

    Raises:
        RuntimeError: If the table is not of the grid ``src``.
    """
    spans = [2 * side - 1 for side in src]
    image = table.double().view(*spans, -1)  # (2 h - 1, 2 w - 1, heads)
    for axis, (old, new) in enumerate(zip(src, dst)):
        if old != new:
            weights = _spline(old, new).to(table.device)
            image = torch.tensordot(weights, image, ([1], [axis])).movedim(0, axis)
    return image.flatten(0, 1).to(table.dtype)


def crop_offsets(table: Tensor, src: Grid, dst: Grid) -> Tensor:
    """Return the offsets of a smaller grid, which are among those of a larger one."""
    image = table.unflatten(0, [2 * side - 1 for side in src])
    for axis, (old, new) in enumerate(zip(src, dst)):
        image = image.narrow(axis, old - new, 2 * new - 1)
    return image.flatten(0, 1)


@cached_tensor(maxsize=16)
def pair_index(grid: Grid, num_prefix: int, device: torch.device) -> Tensor:
    """Return the table's row of every (query, key) pair, (P + N, P + N), of a grid with a class token or without."""
    index = offset_index(grid, device)
    if not num_prefix:
        return index
    first = (2 * grid[0] - 1) * (2 * grid[1] - 1)
    out = index.new_full((len(index) + 1,) * 2, first)  # the class token asks
    out[1:, 0] = first + 1
    out[0, 0] = first + 2
    out[1:, 1:] = index
    return out


def gather_bias(table: Tensor, grid: Grid, num_prefix: int) -> Tensor:
    """Return the entries of every (query, key) pair, (heads, P + N, P + N), of a table for a grid."""
    return table[pair_index(tuple(grid), num_prefix, table.device)].permute(2, 0, 1)


@POSITION_ENCODINGS.register_module('beit')
class BEiTBias(OffsetBias):
    """BEiT's bias: the offsets of the slot's grid or window, and the class token's entries where one runs along.

    The table starts at zero. On another grid, a side with fewer patches has the offsets that it has; one with more
    has them resized. A table of another size is resized once when it is loaded, also to fewer offsets.
    """

    paper_name = 'BEiT'
    has_grid = True

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register the table, ((2 h - 1) (2 w - 1), heads), with three more rows for a class token.

        Raises:
            ConfigError: With more prefix tokens than one, for which the table has no entries.
        """
        super().attach(attn, slot)
        if slot.num_prefix > 1:
            raise ConfigError(
                f"pe_type='beit' has entries for a class token, not for {slot.num_prefix} tokens "
                'before the patches; leave registers and the distillation token out'
            )
        rows = (2 * slot.grid[0] - 1) * (2 * slot.grid[1] - 1) + CLASS_ENTRIES * slot.num_prefix
        attn.register_parameter(TABLE, nn.Parameter(torch.zeros(rows, attn.num_heads)))

    def table(self, attn: nn.Module, grid: Grid) -> Tensor:
        """Return the table for a grid, with the class token's entries behind the offsets."""
        table, built = getattr(attn, TABLE), self.slot.grid
        if grid == built:
            return table
        offsets = (2 * built[0] - 1) * (2 * built[1] - 1)
        covering = (max(built[0], grid[0]), max(built[1], grid[1]))
        resized = crop_offsets(resize_offsets(table[:offsets], built, covering), covering, grid)
        return torch.cat((resized, table[offsets:]))

    def bias(self, attn: nn.Module, grid: Grid, *args) -> Tensor:
        """Return the biases of the patches of a grid, (heads, N, N)."""
        return gather_bias(self.table(attn, grid), grid, 0)

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """Return the bias of all tokens, (1, heads, P + N, P + N)."""
        return gather_bias(self.table(attn, grid), grid, self.slot.num_prefix)[None].to(q.dtype)

    # checkpoints

    def fit(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        """Drop the class token's entries where none runs along."""
        table = stored.get(TABLE)
        if table is None or self.slot.num_prefix or not has_class_entries(table):
            return stored
        return stored | {TABLE: table[:-CLASS_ENTRIES]}

    def resize(self, stored: dict[str, Tensor], src: Grid) -> dict[str, Tensor]:
        """Resize the offsets; the class token's entries are kept."""
        offsets = (2 * src[0] - 1) * (2 * src[1] - 1)
        table = resize_offsets(stored[TABLE][:offsets], src, self.slot.grid)
        return stored | {TABLE: torch.cat((table, stored[TABLE][offsets:]))}

    def found_in(self, attn: dict[str, Tensor]) -> bool:
        """Check for a table that is BEiT's; an attached one knows its own."""
        return TABLE in attn and (hasattr(self, 'slot') or is_beits(attn))

    def infer_grid(self, attn: dict[str, Tensor], known: Grid | None = None) -> Grid | None:
        """Return the grid whose offsets the table has."""
        table = attn[TABLE]
        return grid_of_offsets(len(table) - CLASS_ENTRIES * has_class_entries(table), known)
