"""Multi-scale deformable attention (Deformable DETR, ICLR 2021, Eq. 3) on the fastest backend that is installed.

    out(q) = W sum_l sum_k A_lk(q) value_l(centre(q) + offset_lk(q))

in each head, with bilinear samples (zeros outside, pixel centres at half coordinates) and weights A
that a softmax over all levels and points normalises.
"""

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.models.grid import Grid, cached_tensor, is_recorded
from mmlape.openmmlab.mmcv_ops import lend_ops


class FeatureLevels(NamedTuple):
    """The levels of a feature pyramid, as deformable attention needs to know them."""

    spatial_shapes: tuple[Grid, ...]  # (rows, columns) of each of the L levels
    # centre (x, y) of each cell in [0, 1] of its level, (S, 2), float32 whatever the model's dtype
    reference_points: Tensor
    offset_normalizer: Tensor  # (columns, rows) of each level, (L, 2), float32

    @classmethod
    def of(cls, shapes: Sequence[Grid], device: torch.device) -> 'FeatureLevels':
        """Build the cells of levels ``shapes``."""
        levels = []
        for rows, columns in shapes:
            y = torch.linspace(0.5, rows - 0.5, rows, device=device) / rows
            x = torch.linspace(0.5, columns - 0.5, columns, device=device) / columns
            levels.append(torch.cartesian_prod(y, x).flip(-1))
        widths = [(columns, rows) for rows, columns in shapes]
        normalizer = torch.tensor(widths, dtype=torch.float32, device=device)
        return cls(tuple(shapes), torch.cat(levels), normalizer)


def _pytorch(value: Tensor, shapes: Sequence[Grid], locations: Tensor, weights: Tensor) -> Tensor:
    batch, _, heads, dims = value.shape
    queries = locations.shape[1]
    sizes = [rows * columns for rows, columns in shapes]
    # (L, B*heads, Q, P, 2) in [-1, 1]
    grid = 2 * locations.permute(3, 0, 2, 1, 4, 5).flatten(1, 2) - 1
    weights = weights.permute(3, 0, 2, 1, 4).flatten(1, 2)  # (L, B*heads, Q, P)
    # (B*heads, d, rows*columns) a level
    maps = value.permute(0, 2, 3, 1).flatten(0, 1).split(sizes, dim=-1)
    out = 0
    for level, shape in enumerate(shapes):
        image = maps[level].unflatten(-1, shape)
        sampled = F.grid_sample(image, grid[level], 'bilinear', 'zeros', align_corners=False)
        out = out + (sampled * weights[level][:, None]).sum(-1)  # (B*heads, d, Q)
    return out.view(batch, heads * dims, queries).transpose(1, 2)


def _axis(position: Tensor, size: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return weight and clamped index of the cells around each position on one axis.

    Weights outside are 0.
    """
    at = position * size - 0.5
    low = at.detach().floor()
    share = at - low
    low, last = low.int(), size.int() - 1
    cells = ((1 - share, low), (share, low + 1))
    return [
        # a product: NaN stays NaN
        (weight * ((index >= 0) & (index <= last)), index.minimum(last).clamp(min=0))
        for weight, index in cells
    ]


def _embedding_bag(value: Tensor, shapes: Sequence[Grid], locations: Tensor, weights: Tensor) -> Tensor:
    """Sum rows of ``value`` by weight: four rows a sample, with bilinear times attention weights."""
    index, shares = _rows(value, shapes, locations, weights)
    out = row_sums(value.flatten(0, 2), index, shares)
    return out.unflatten(0, locations.shape[:3]).flatten(2)


def _gather(value: Tensor, shapes: Sequence[Grid], locations: Tensor, weights: Tensor) -> Tensor:
    """Gather the rows that `_embedding_bag` sums: one Gather of an ONNX graph, which every runtime has."""
    index, shares = _rows(value, shapes, locations, weights)
    rows = F.embedding(index, value.flatten(0, 2))
    out = torch.bmm(shares[:, None], rows)[:, 0]
    return out.unflatten(0, locations.shape[:3]).flatten(2)


def _rows(value: Tensor, shapes: Sequence[Grid], locations: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each sum which rows of ``value`` it has, (B * Q * heads, 4 * L * points), and with what weights."""
    batch, _, heads, _ = value.shape
    points = locations.shape[4]
    columns, rows, first = _row_tables(shapes, batch, heads, points, value.device)
    x, y = locations.permute(5, 0, 1, 2, 3, 4).contiguous()  # (B, Q, heads, L, P) each
    across = [(weight, index * heads) for weight, index in _axis(x, columns.to(x.dtype))]
    down = [(weight * weights, first + index * (columns * heads)) for weight, index in _axis(y, rows.to(y.dtype))]
    pairs = [(u * v, i + j) for v, j in down for u, i in across]
    shares, index = (torch.stack(parts, dim=3).flatten(3).flatten(0, 2) for parts in zip(*pairs))
    return index, shares


def _row_tables(
    shapes: Sequence[Grid], batch: int, heads: int, points: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return columns and rows of each level, (L, P), and the row of ``value`` where image, head and level begin.

    A level without cells has its first row there, which is read with a weight of 0.
    """
    shapes = [shape if all(shape) else (0, 0) for shape in shapes]
    sizes = torch.tensor(shapes, dtype=torch.int32, device=device)[..., None].expand(-1, -1, points)
    rows, columns = (size.contiguous() for size in sizes.unbind(1))
    cells = rows * columns
    level = cells.cumsum(0, dtype=torch.int32) - cells  # (L, P)
    image = torch.arange(batch, dtype=torch.int32, device=device).view(-1, 1, 1, 1, 1) * cells[:, 0].sum()
    head = torch.arange(heads, dtype=torch.int32, device=device)[:, None, None]
    return columns, rows, (((image + level) * heads + head) * (cells > 0)).int()


@cached_tensor(maxsize=256)
def _level_table(shapes: tuple[Grid, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    sizes = torch.tensor([rows * columns for rows, columns in shapes])
    starts = sizes.cumsum(0) - sizes
    return torch.tensor(shapes).to(device), starts.to(device)


@cache
def _load_backend(name: str):
    """Return the callable of a backend, or None with the reason when it cannot be imported."""
    try:
        if name == 'deformops':
            from deformops.registry import msda

            return msda, ''
        lend_ops()
        from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction

        return MultiScaleDeformableAttnFunction.apply, ''
    except Exception as error:
        return None, f'{name}: {error}'


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=3)


_exporting: list[bool] = []
"""Has an entry while a graph is exported: torch's own flag is not set wherever its exporter traces a model."""


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Compute deformable attention as an ONNX graph is to have it."""
    _exporting.append(True)
    try:
        yield
    finally:
        _exporting.pop()


def available_backends(device: str | torch.device, dtype: torch.dtype = torch.float32) -> list[str]:
    """List the backends ('deformops', 'mmcv', 'embedding_bag', 'pytorch') for a device and dtype, best first.

    On CUDA, deformops runs Triton kernels in float32, float16 and bfloat16, and mmcv's compiled op runs in float32
    and float64. On the CPU sums of rows are the fastest; on CUDA they alone add gradients in one order, so that
    they go first under ``torch.use_deterministic_algorithms``, unless a compiler records them. Sampling by
    ``grid_sample`` runs everywhere, and is what a compiler fuses. An export to ONNX has 'gather' alone, since few
    runtimes have a fast GridSample.
    """
    if _exporting:
        return ['gather']
    names = []
    device_type = torch.device(device).type
    eager = not is_recorded()
    ordered = device_type == 'cuda' and eager and torch.are_deterministic_algorithms_enabled()
    if ordered or (device_type == 'cpu' and eager):
        names.append('embedding_bag')
    if device_type == 'cuda':
        if dtype != torch.float64 and _load_backend('deformops')[0]:
            names.append('deformops')
        if _load_backend('mmcv')[0]:
            names.append('mmcv')
    return [*names, 'pytorch']


def multi_scale_deformable_attention(
    value: Tensor, shapes: Sequence[Grid], locations: Tensor, weights: Tensor, backend: str | None = None
) -> Tensor:
    """Sample a pyramid and sum the samples by weight.

    Half-precision inputs stay in half precision where the backend can (deformops); elsewhere the
    sum is computed in float32, inside autocast as well.

    Args:
        value: The pyramid's cells, all levels one after the other, (B, S, heads, d).
        shapes: (rows, columns) of each of the L levels.
        locations: Where to sample, (x, y) in [0, 1] of a level, (B, Q, heads, L, points, 2).
        weights: (B, Q, heads, L, points).
        backend: 'deformops', 'mmcv', 'embedding_bag', 'gather' or 'pytorch'; None takes the best of
            ``available_backends``.

    Returns:
        (B, Q, heads * d), in the dtype of ``value``.
    """
    dtype = value.dtype
    if backend is None:
        backend = available_backends(value.device, dtype)[0]
        if backend == 'pytorch' and value.is_cuda:
            reasons = '; '.join(filter(None, (_load_backend(name)[1] for name in ('deformops', 'mmcv'))))
            _warn_once(f'deformable attention runs in plain PyTorch, which is slow on a GPU ({reasons}); '
                       'with Python 3.12 or 3.13: pip install deformops')  # fmt: skip
    if backend == 'deformops':
        table, starts = _level_table(tuple(shapes), value.device)
        return _load_backend(backend)[0](value, table, starts, locations, weights.to(dtype))
    half = dtype in (torch.float16, torch.bfloat16)
    with torch.autocast(value.device.type, enabled=False):
        precision = torch.float32 if half else dtype
        value, locations, weights = (value.to(precision), locations.to(precision), weights.to(precision))
        if backend == 'mmcv':
            table, starts = _level_table(tuple(shapes), value.device)
            step = math.gcd(len(value), 64)
            out = _load_backend(backend)[0](value.contiguous(), table, starts, locations.contiguous(), weights, step)
        else:
            out = _PLAIN[backend](value, shapes, locations, weights)
    return out.to(dtype)


_PLAIN = {'embedding_bag': _embedding_bag, 'gather': _gather, 'pytorch': _pytorch}
"""Backends in PyTorch."""


def sample_weights(logits: Tensor, samples: tuple[int, int, int]) -> Tensor:
    """Return the weights (B, Q, heads, L, points) of logits (B, Q, heads * L * points).

    A softmax in each head. On the CPU it runs over columns, since PyTorch's kernel for rows takes
    four times as long where these are short. deformops takes weights in the dtype of the values, so
    that there is no copy in float32 for it under autocast: the kernel sums in float32 in any case.
    """
    rows = logits.unflatten(-1, (samples[0], -1))
    if rows.device.type == 'cpu':
        weights = rows.flatten(0, 2).t().softmax(0).t().contiguous().view(rows.shape)
    elif available_backends(rows.device, rows.dtype)[0] == 'deformops':
        with torch.autocast(rows.device.type, enabled=False):
            weights = rows.softmax(-1)
    else:
        weights = rows.softmax(-1)
    return weights.unflatten(-1, samples[1:])


class MSDeformAttn(nn.Module):
    """Deformable attention from queries into a pyramid of ``n_levels``, with the official parameter names.

    Each head samples ``n_points`` places a level; ``ratio`` is the width of the values relative to
    ``embed_dims``.
    """

    def __init__(self, embed_dims: int, n_levels: int, num_heads: int, n_points: int, ratio: float = 1.0):
        super().__init__()
        value_dims = int(embed_dims * ratio)
        self.samples = (num_heads, n_levels, n_points)
        self.sampling_offsets = nn.Linear(embed_dims, 2 * math.prod(self.samples))
        self.attention_weights = nn.Linear(embed_dims, math.prod(self.samples))
        self.value_proj = nn.Linear(embed_dims, value_dims)
        self.output_proj = nn.Linear(value_dims, embed_dims)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set initial values: head h samples in direction 2 pi h / heads, point p at p + 1 cells.

        All weights are equal.
        """
        heads, levels, points = self.samples
        angle = torch.arange(heads) * (2 * math.pi / heads)
        ray = torch.stack((angle.cos(), angle.sin()), dim=-1)
        ray = ray / ray.abs().amax(dim=-1, keepdim=True)  # on the unit square
        steps = torch.arange(1, points + 1)
        rays = (ray[:, None, None] * steps[:, None]).expand(heads, levels, points, 2)
        for linear in (self.sampling_offsets, self.attention_weights):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(rays.flatten())
        for linear in (self.value_proj, self.output_proj):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, query: Tensor, query_levels: FeatureLevels, feat: Tensor, feat_levels: FeatureLevels) -> Tensor:
        """Attend with queries (B, Q, D) to features (B, S, D), each one per cell of its levels."""
        value = self.value_proj(feat).unflatten(-1, (self.samples[0], -1))  # (B, S, heads, d)
        offsets = self.sampling_offsets(query).unflatten(-1, (*self.samples, 2))
        weights = sample_weights(self.attention_weights(query), self.samples)
        offsets = offsets / feat_levels.offset_normalizer[:, None]
        locations = query_levels.reference_points[:, None, None, None] + offsets
        shapes = feat_levels.spatial_shapes
        return self.output_proj(multi_scale_deformable_attention(value, shapes, locations, weights))


def row_sums(rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Sum rows by weight, always in one order; differentiable twice.

        out_i = sum_k w_ik v_[j_ik]        dL/dv_r = sum_{(i, k): j_ik = r} w_ik g_i        dL/dw_ik = <g_i, v_[j_ik]>

    The gradient of the rows needs the pairs (i, k) in the order of their row: they are sorted once,
    and ``F.embedding_bag`` sums them. PyTorch's own backward of ``F.embedding_bag`` adds one row at
    a time.

    Args:
        rows: (R, d), float32 or float64.
        index: Rows to sum, (N, K) in [0, R), int32.
        weights: (N, K).

    Returns:
        (N, d).
    """
    return _RowSums.apply(rows, index, weights)


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(index, rows, mode='sum', per_sample_weights=weights)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        rows, index, weights = ctx.saved_tensors
        needs_rows, _, needs_weights = ctx.needs_input_grad
        gradient = gradient.contiguous()
        return (
            _gradient_of_rows(gradient, index, weights, len(rows)) if needs_rows else None,
            None,
            _gradient_of_weights(gradient, index, rows) if needs_weights else None,
        )


def _gradient_of_rows(gradient: Tensor, index: Tensor, weights: Tensor, count: int) -> Tensor:
    row, pair = index.view(-1).sort(stable=True)  # so that sums have one order
    starts = torch.searchsorted(row, torch.arange(count, dtype=row.dtype, device=row.device))
    weights = weights.reshape(-1).index_select(0, pair)
    return F.embedding_bag(pair // index.shape[1], gradient, starts, mode='sum', per_sample_weights=weights)


def _gradient_of_weights(gradient: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Take the entries of ``gradient @ rows.T`` at the places (i, j_ik), as a sparse matrix of zeros has them."""
    bags, size = index.shape
    # the sparse product has no second derivative, and takes no more entries than a dense matrix has
    if torch.is_grad_enabled() or size > len(rows):
        return (rows[index] * gradient[:, None]).sum(-1)
    starts = torch.arange(0, bags * size + 1, size, dtype=index.dtype, device=index.device)
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse (CSR tensor support|invariant checks)')
        places = torch.sparse_csr_tensor(starts, index.view(-1), rows.new_zeros(bags * size), (bags, len(rows)))
    return torch.sparse.sampled_addmm(places, gradient, rows.t(), beta=0).values().view(bags, size)
