"""Self-attention in windows of a grid, shifted in every second layer (Swin, ICCV 2021, section 3.2).

    out = unroll(merge(Attention(windows(roll(x)))))

In shifted windows, tokens that are neighbours only because the grid was rolled do not see each other.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlape.models.cached_tensors import cached_tensor
from mmlape.models.grid import Grid, ceil_div
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.position import AttentionInput


@cached_tensor(maxsize=32)
def apart_in(grid: Grid, window: int, shift: int, device: torch.device) -> Tensor:
    """Return which tokens of a window are no neighbours before the roll, (windows, N, N) bool.

    Args:
        grid: In complete windows.
        window: Side of a window.
        shift: By which the grid was rolled to the left and the top.
        device: Of the result.
    """
    # whether a row, or a column, has come around the border
    rows, columns = ((torch.arange(side, device=device) >= side - shift).int() for side in grid)
    parts = partition((2 * rows[:, None] + columns)[None, ..., None], window)[..., 0]  # (windows, N)
    return parts[:, :, None] != parts[:, None]


def partition(x: Tensor, window: int) -> Tensor:
    """Cut maps (B, H, W, C) of complete windows into (B * windows, N, C)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window, window, width // window, window, channels)
    return x.transpose(2, 3).reshape(-1, window * window, channels)


def assemble(windows: Tensor, grid: Grid, window: int) -> Tensor:
    """Put windows (B * windows, N, C) together to maps (B, H, W, C)."""
    (height, width), channels = grid, windows.shape[-1]
    x = windows.view(-1, height // window, width // window, window, window, channels)
    return x.transpose(2, 3).reshape(-1, height, width, channels)


def _windows(x: Tensor, hw: Grid, grid: Grid, side: int, shift: int) -> Tensor:
    """Return tokens (B, H * W, D) as windows (B * windows, N, D) of the padded, rolled grid."""
    x = x.unflatten(1, hw)
    if grid != tuple(hw):
        x = F.pad(x, (0, 0, 0, grid[1] - hw[1], 0, grid[0] - hw[0]))
    return partition(x.roll((-shift, -shift), (1, 2)) if shift else x, side)


class ShiftedWindowAttention(MultiheadAttention):
    """Swin's attention, for maps of any size.

    Maps are padded to complete windows on the right and the bottom, with zeros before the qkv projection, and the
    padding is not masked.

    Args:
        embed_dims: Width D of the tokens.
        num_heads: Heads, each of width d = D / heads.
        qkv_bias: Whether the qkv projection has a bias.
        attn_drop_rate: Dropout of the attention weights.
        proj_drop_rate: Dropout of the output.
        window_size: Side of a window in tokens.
        encodings: Position encodings inside this attention.
        place: Where they are attached; needed where there are any.
        shift: By how many tokens windows are shifted.
        pad_small_map: What happens to a map whose short side is at most a window. True pads and shifts it like any
            other, as mmdetection, mmsegmentation and mmpretrain's option of this name do. False shrinks the windows to
            its short side and does not shift them, as Microsoft's classifier does; tables of the encodings are
            resized where they are made for other windows.
    """

    window_size: int

    def __init__(self, *args, shift: int = 0, pad_small_map: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.shift, self.pad_small_map = shift, pad_small_map

    def windows_of(self, hw: Grid) -> tuple[int, int]:
        """Return the side of the windows of a map, and by how many tokens they are shifted."""
        if self.pad_small_map or min(hw) > self.window_size:
            return self.window_size, self.shift
        return min(hw), 0

    def forward(self, x: Tensor | AttentionInput, hw: Grid) -> Tensor:
        """Attend.

        Args:
            x: Tokens (B, N, D), or what queries, keys and values are projected from.
            hw: Grid of the tokens.

        Returns:
            (B, N, D)
        """
        (height, width), (side, shift) = hw, self.windows_of(hw)
        grid = (ceil_div(height, side) * side, ceil_div(width, side) * side)
        parts = [_windows(part, hw, grid, side, shift) for part in ((x,) if isinstance(x, Tensor) else x)]
        x = parts[0] if isinstance(x, Tensor) else AttentionInput(*parts)
        q, k, v = self._project(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        apart = apart_in(grid, side, shift, q.device) if shift else None
        out = self._attend(q, k, v, (side, side), apart).transpose(1, 2).flatten(2)
        out = assemble(out, grid, side)
        out = out.roll((shift, shift), (1, 2)) if shift else out
        return self.proj_drop(self.proj(out[:, :height, :width].flatten(1, 2)))
