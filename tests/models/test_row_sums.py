"""Sums of rows, which deformable attention on the CPU is made of, against PyTorch's own."""

import torch
import torch.nn.functional as F
from model_helpers import operations

from mmlape.models.adapter.deform_attn import row_sums


def bags(rows=40, count=30, size=7, dims=8, dtype=torch.float32):
    index = torch.randint(0, rows, (count, size), dtype=torch.int32)
    index[:, 1] = index[:, 0]  # a row twice in one sum
    return torch.randn(rows, dims, dtype=dtype), index, torch.rand(count, size, dtype=dtype)


def reference(rows, index, weights):
    return F.embedding_bag(index, rows, mode='sum', per_sample_weights=weights)


def test_gradients_of_row_sums_are_those_of_embedding_bag():
    rows, index, weights = bags()
    found = []
    for function in (row_sums, reference):
        leaves = [rows.clone().requires_grad_(), weights.clone().requires_grad_()]
        out = function(leaves[0], index, leaves[1])
        found.append([out, *torch.autograd.grad(out.pow(3).sum(), leaves)])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


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
