"""Weighted sums of rows of a matrix, with a backward pass that is a sum of rows as well.

    out_i = sum_k w_ik v_[j_ik]        dL/dv_r = sum_{(i, k): j_ik = r} w_ik g_i        dL/dw_ik = <g_i, v_[j_ik]>

The gradient of the rows needs the pairs (i, k) in the order of their row: they are sorted once, and
``F.embedding_bag`` sums them. PyTorch's own backward of ``F.embedding_bag`` adds one row at a time.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor


def row_sums(rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Sum rows by weight, on the CPU; differentiable twice.

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
    starts = torch.searchsorted(row, torch.arange(count, dtype=row.dtype))
    weights = weights.reshape(-1).index_select(0, pair)
    return F.embedding_bag(pair // index.shape[1], gradient, starts, mode='sum', per_sample_weights=weights)


def _gradient_of_weights(gradient: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Take the entries of ``gradient @ rows.T`` at the places (i, j_ik), as a sparse matrix of zeros has them."""
    bags, size = index.shape
    # the sparse product has no second derivative, and takes no more entries than a dense matrix has
    if torch.is_grad_enabled() or size > len(rows):
        return (rows[index] * gradient[:, None]).sum(-1)
    starts = torch.arange(0, bags * size + 1, size, dtype=index.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse (CSR tensor support|invariant checks)')
        places = torch.sparse_csr_tensor(starts, index.view(-1), rows.new_zeros(bags * size), (bags, len(rows)))
    return torch.sparse.sampled_addmm(places, gradient, rows.t(), beta=0).values().view(bags, size)
