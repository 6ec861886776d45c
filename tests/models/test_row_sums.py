"""Sums of rows, which deformable attention on the CPU is made of: fast, deterministic, and only what is asked for."""

import torch
from model_helpers import operations

from mmlape.models.adapter.deform_attn import row_sums


def bags(rows=40, count=30, size=7, dims=8, dtype=torch.float32):
    index = torch.randint(0, rows, (count, size), dtype=torch.int32)
    index[:, 1] = index[:, 0]  # a row twice in one sum
    return torch.randn(rows, dims, dtype=dtype), index, torch.rand(count, size, dtype=dtype)


def test_row_sums_are_fast_both_ways():
    """Neither backward of ``F.embedding_bag`` runs: each adds one row at a time."""
    rows, index, weights = bags()
    with operations() as counts:
        row_sums(rows.requires_grad_(), index, weights.requires_grad_()).sum().backward()
    bags_of = {name: count for name, count in counts.items() if '_bag' in name}
    assert sum(bags_of.values()) == 2 and all(name.startswith('_embedding_bag') for name in bags_of)
    assert not any('backward' in name for name in bags_of)


def test_row_sums_give_the_gradients_that_are_asked_for():
    rows, index, weights = bags()
    row_sums(rows.requires_grad_(), index, weights).sum().backward()
    assert weights.grad is None
    expected = rows.grad.clone()
    rows.grad = None
    row_sums(rows, index, weights.requires_grad_()).sum().backward()
    assert torch.equal(rows.grad, expected) and weights.grad is not None


def test_what_is_not_a_number_stays_where_it_is():
    rows, index, weights = bags()
    weights[0, 0] = float('nan')
    row_sums(rows, index, weights.requires_grad_()).sum().backward()
    assert weights.grad.isfinite().all()
