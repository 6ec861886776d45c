"""Linear maps and sums of rows in forms that are faster on the CPU, against PyTorch's own."""

from math import inf

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from mmlape.models.adapter.deform_attn import row_sums
from mmlape.models.layers import linear as module
from mmlape.models.layers.linear import Linear, linear


@pytest.fixture
def onednn(monkeypatch):
    """The fast path, on whatever processor and for maps of whatever size; and how often it was taken."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip('PyTorch without oneDNN')
    taken, own = [], module._Linear.apply
    monkeypatch.setattr(module, '_break_even', lambda: (1, 0))
    monkeypatch.setattr(module._Linear, 'apply', lambda *args: taken.append(1) or own(*args))
    return taken


def derivatives(function, x, weight, bias):
    """Output, gradients, and gradients of the gradients."""
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    out = function(x, weight, bias)
    first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(one.pow(2).sum() for one in first), leaves)
    return [out, *first, *second]


@pytest.mark.parametrize('shape', [(16,), (7, 16), (2, 5, 16), (3, 2, 4, 16)])
@pytest.mark.parametrize('with_bias', [True, False])
def test_is_the_linear_map_with_both_its_derivatives(onednn, shape, with_bias):
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(12, 16, requires_grad=True)
    bias = torch.randn(12, requires_grad=True) if with_bias else None
    found = derivatives(linear, x, weight, bias)
    exact = [None if leaf is None else leaf.detach().double().requires_grad_() for leaf in (x, weight, bias)]
    for mine, expected in zip(found, derivatives(F.linear, *exact), strict=True):
        torch.testing.assert_close(mine.double(), expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
    assert onednn


@pytest.mark.parametrize(
    ('limits', 'calls'), [((20 * 16 * 12, 0), 3), ((20 * 16 * 12 + 1, 0), 0), ((1, 12 * 16 + 1), 2)]
)
def test_small_products_and_gradients_of_small_weights_are_pytorchs_own(onednn, monkeypatch, limits, calls):
    monkeypatch.setattr(module, '_break_even', lambda: limits)
    x, weight = torch.randn(20, 16, requires_grad=True), torch.randn(12, 16, requires_grad=True)
    derivatives(linear, x, weight, None)
    found = len(onednn)
    onednn.clear()
    torch.autograd.grad(linear(x, weight).sum(), (x, weight))
    assert len(onednn) == calls <= found


@pytest.mark.parametrize(('family', 'limits'), [(25, (2**26, 2**19)), (26, (2**23, 0))])
def test_limits_are_the_processors(monkeypatch, tmp_path, family, limits):
    monkeypatch.setattr(torch.backends.cpu, 'get_cpu_capability', lambda: 'AVX512')
    for vendor, expected in (('AuthenticAMD', limits), ('GenuineIntel', (inf, inf))):
        (tmp_path / 'cpuinfo').write_text(f'vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 2\n')
        monkeypatch.setattr(module, 'Path', lambda _: tmp_path / 'cpuinfo')
        assert module._break_even.__wrapped__() == expected


def test_views_are_read_as_they_are(onednn):
    x, weight = torch.randn(2, 10, 16)[:, 1:].transpose(0, 1), torch.randn(16, 12).t()
    with torch.inference_mode():
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    assert onednn


def test_recorded_transformed_and_cast_operations_are_pytorchs_own(onednn):
    layer, x = Linear(16, 8), torch.randn(3, 16)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() == 2 * 3 * 16 * 8
    assert torch.compile(layer, backend='eager', fullgraph=True)(x).shape == (3, 8)
    assert 'aten::linear(' in str(torch.jit.trace(layer, x, check_trace=False).inlined_graph)
    torch.func.vmap(torch.func.grad(lambda one: layer(one).sum()))(x)
    with torch.autocast('cpu', torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer.double()(x.double()).dtype == torch.float64
    assert not onednn


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


def test_gradients_of_row_sums_are_finite_differences():
    rows, index, weights = bags(10, 5, 3, 4, torch.float64)
    arguments = rows.requires_grad_(), index, weights.requires_grad_()
    assert torch.autograd.gradcheck(row_sums, arguments) and torch.autograd.gradgradcheck(row_sums, arguments)


def test_row_sums_are_fast_both_ways():
    """Neither backward of ``F.embedding_bag`` runs: each adds one row at a time."""
    names = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    rows, index, weights = bags()
    with Record():
        row_sums(rows.requires_grad_(), index, weights.requires_grad_()).sum().backward()
    assert sum('_embedding_bag' in name for name in names) == 2 and not any('_bag_' in name[20:] for name in names)


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
