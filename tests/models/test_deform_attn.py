"""Deformable attention: backends against each other and against sampling written with loops."""

import json
import subprocess
import sys

import pytest
import torch
from model_helpers import operations
from tiny import GUARD, ROOT, environment

from mmlape.models.adapter.deform_attn import available_backends, multi_scale_deformable_attention, row_sums

SHAPES = ((5, 7), (3, 4), (2, 2))


def inputs(dtype=torch.float32, queries=6, heads=2, dims=4, points=3):
    cells = sum(rows * columns for rows, columns in SHAPES)
    value = torch.randn(2, cells, heads, dims, dtype=dtype)
    locations = torch.rand(2, queries, heads, len(SHAPES), points, 2, dtype=dtype) * 1.4 - 0.2  # some are outside
    weights = torch.rand(2, queries, heads, len(SHAPES) * points, dtype=dtype).softmax(-1)
    return value, SHAPES, locations, weights.unflatten(-1, (len(SHAPES), points))


def looped(value, shapes, locations, weights):
    """Bilinear sampling with pixel centres at half coordinates and zeros outside, one number at a time."""
    batch, queries, heads, _, points, _ = locations.shape
    out = torch.zeros(batch, queries, heads, value.shape[-1], dtype=value.dtype)
    start = 0
    for level, (rows, columns) in enumerate(shapes):
        image = value[:, start : start + rows * columns].unflatten(1, (rows, columns))
        start += rows * columns
        for b in range(batch):
            for q in range(queries):
                for h in range(heads):
                    for p in range(points):
                        x, y = locations[b, q, h, level, p].tolist()
                        x, y = x * columns - 0.5, y * rows - 0.5
                        x0, y0 = int(x // 1), int(y // 1)
                        for yy in (y0, y0 + 1):
                            for xx in (x0, x0 + 1):
                                if 0 <= yy < rows and 0 <= xx < columns:
                                    share = (1 - abs(y - yy)) * (1 - abs(x - xx)) * weights[b, q, h, level, p]
                                    out[b, q, h] += share * image[b, yy, xx, h]
    return out.flatten(2)


@pytest.mark.parametrize('backend', ['embedding_bag', 'gather', 'pytorch'])
def test_plain_backends_are_bilinear_sampling(backend):
    args = inputs(torch.float64)
    out = multi_scale_deformable_attention(*args, backend=backend)
    torch.testing.assert_close(out, looped(*args), atol=1e-10, rtol=0)


def test_the_cpu_sums_rows_unless_operations_are_recorded():
    assert available_backends('cpu') == ['embedding_bag', 'pytorch']
    chosen = []

    def choose(x):
        chosen.append(available_backends('cpu')[0])
        return x

    torch.jit.trace(choose, torch.zeros(1), check_trace=False)
    torch.compile(choose, backend='eager', fullgraph=True)(torch.zeros(1))
    assert chosen == ['pytorch'] * 2


def test_rows_are_summed_on_a_gpu_where_gradients_must_have_one_order():
    before = available_backends('cuda')
    assert 'embedding_bag' not in before
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert available_backends('cuda') == ['embedding_bag', *before]
        assert available_backends('mps') == available_backends('meta') == ['pytorch']
    finally:
        torch.use_deterministic_algorithms(False)


def gradients(backend, args, dtype):
    value, shapes, locations, weights = args
    leaves = [x.detach().to(dtype).requires_grad_() for x in (value, locations, weights)]
    out = multi_scale_deformable_attention(leaves[0], shapes, *leaves[1:], backend=backend)
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), leaves)]


SIDES = {'injector': (36, ((12, 12), (6, 6), (3, 3))), 'extractor': (189, ((6, 6),))}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


@pytest.mark.parametrize('dtype', TOLERANCE)
@pytest.mark.parametrize('side', SIDES)
@pytest.mark.parametrize('backend', ['embedding_bag', 'deformops'])
def test_gradients_and_outputs_agree_in_every_dtype(backend, side, dtype):
    """On the adapter's shapes, against ``grid_sample`` in float64 on the same rounded inputs."""
    if backend == 'deformops':
        pytest.importorskip('deformops', reason='deformops needs Python 3.12 or 3.13')
    queries, shapes = SIDES[side]
    cells = sum(rows * columns for rows, columns in shapes)
    value = torch.randn(2, cells, 6, 32)
    locations = torch.rand(2, queries, 6, len(shapes), 4, 2) * 1.2 - 0.1
    sizes = torch.tensor([(columns, rows) for rows, columns in shapes])[:, None]
    locations = ((locations * sizes * 4).floor() + 0.5) / 4 / sizes  # off the cells' centres, where the slope jumps
    weights = torch.rand(2, queries, 6, len(shapes) * 4).softmax(-1).unflatten(-1, (-1, 4))
    rounded = [x.to(dtype) if torch.is_tensor(x) else x for x in (value, shapes, locations, weights)]
    expected = gradients('pytorch', rounded, torch.float64)
    for out, exact in zip(gradients(backend, rounded, dtype), expected, strict=True):
        assert out.dtype == dtype
        assert (out.double() - exact.double()).norm() <= TOLERANCE[dtype] * exact.double().norm()


@pytest.mark.parametrize('shapes', [((2, 3),), ((1, 1),)], ids=str)
def test_maps_of_fewer_cells_than_a_query_reads(shapes):
    value, (_, _, places, weights) = torch.randn(1, shapes[0][0] * shapes[0][1], 2, 4), inputs(heads=2, points=8)
    args = value, shapes, places[:1, :, :, :1], weights[:1, :, :, :1]
    for out, exact in zip(
        *(gradients(name, args, torch.float64) for name in ('embedding_bag', 'pytorch')), strict=True
    ):
        torch.testing.assert_close(out, exact, atol=1e-6, rtol=1e-6)


@pytest.mark.release
def test_deformops_kernels_are_our_row_sums():
    """Outputs and all gradients, by Triton's interpreter; also maps of one row, batch 1 and levels without cells."""
    pytest.importorskip('triton', reason="Triton comes with torch's packages for Linux")
    pytest.importorskip('deformops', reason='deformops needs Python 3.12 or 3.13')
    command = [sys.executable, '-W', 'ignore', str(ROOT / 'tests' / 'triton_interpreter.py')]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, env=environment(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert {'one row', 'one cell', 'level without rows'} < set(found)
    assert {name: apart for name, apart in found.items() if not max(apart) < 1e-6} == {}


def test_half_precision_is_summed_in_float32():
    value, shapes, locations, weights = inputs()
    out = multi_scale_deformable_attention(value.bfloat16(), shapes, locations, weights.bfloat16())
    assert out.dtype == torch.bfloat16
    expected = multi_scale_deformable_attention(
        value.bfloat16().float(), shapes, locations, weights.bfloat16().float()
    )
    torch.testing.assert_close(out, expected.bfloat16())
    with torch.autocast('cpu', torch.bfloat16):
        torch.testing.assert_close(
            multi_scale_deformable_attention(value, shapes, locations, weights),
            multi_scale_deformable_attention(value, shapes, locations, weights, backend='pytorch'),
        )


# sums of rows, which it is made of on the CPU


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
