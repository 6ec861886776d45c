"""BEiT's bias and its tables, biases of queries and values, windows padded before qkv, and the baselines' pyramid."""

import pytest
import torch
import torch.nn.functional as F
from golden_models import load
from model_helpers import randomise, vit
from torch import nn

from mmlape.models import ViTPyramid
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.position import AttentionSlot
from mmlape.models.position.beit import BEiTBias, resize_offsets
from mmlape.models.position.relative_bias import TABLE

TABLES = {'finer': (14, 20), 'crop': (14, 8), 'fitted': (6, 9)}


def attached(side: int | tuple[int, int], num_prefix: int = 0, heads: int = 3) -> tuple[nn.Module, BEiTBias]:
    """An attention with the bias, whose table is random."""
    grid = (side, side) if isinstance(side, int) else side
    encoding = BEiTBias()
    attn = MultiheadAttention(24, heads, encodings=[encoding], slot=AttentionSlot(0, grid, num_prefix))
    return randomise(attn).double(), encoding


@pytest.mark.parametrize('name', TABLES)
@pytest.mark.parametrize('task', ['segmentation', 'detection'])
def test_tables_are_resized_as_by_the_public_code(name, task):
    """'crop': the step of 1.01 is not small enough, so the table's ends are left out."""
    data, (src, dst) = load('beit'), TABLES[name]
    _, encoding = attached(dst, num_prefix=int(task == 'segmentation'))
    stored = {TABLE: torch.from_numpy(data[f'tables/{name}/stored'])}
    out = encoding.resize(encoding.fit(stored), (src, src))[TABLE]
    torch.testing.assert_close(out, torch.from_numpy(data[f'tables/{name}/{task}']), atol=1e-6, rtol=0)


def test_a_resized_table_of_the_same_size_is_the_table():
    table = torch.randn(7 * 11, 2)
    assert torch.equal(resize_offsets(table, (4, 6), (4, 6)), table)


def test_sides_are_resized_one_by_one():
    table = torch.randn(7 * 7, 2, dtype=torch.float64)
    rows = resize_offsets(table, (4, 4), (6, 4))
    torch.testing.assert_close(resize_offsets(rows, (6, 4), (6, 9)), resize_offsets(table, (4, 4), (6, 9)))


def test_a_smaller_grid_has_the_offsets_that_it_has():
    attn, encoding = attached((4, 5), num_prefix=1)
    whole = encoding.bias(attn, (4, 5)).unflatten(1, (4, 5)).unflatten(3, (4, 5))
    part = encoding.bias(attn, (3, 2)).unflatten(1, (3, 2)).unflatten(3, (3, 2))
    torch.testing.assert_close(part, whole[:, 1:, 2:4, 1:, 2:4])


def test_a_larger_side_is_resized_and_the_other_one_is_not():
    attn, encoding = attached((4, 5))
    table = getattr(attn, TABLE)
    wide = encoding.bias(attn, (3, 7))
    resized = resize_offsets(table, (4, 5), (4, 7)).unflatten(0, (7, 13))[1:-1]
    i, j = (2, 1), (0, 6)  # (row, column) of a query and of a key
    torch.testing.assert_close(wide[:, 2 * 7 + 1, 6], resized[i[0] - j[0] + 2, i[1] - j[1] + 6])
    wide.square().sum().backward()
    assert table.grad.unflatten(0, (7, 9))[1:-1].abs().min() > 0


def test_another_grid_compiles():
    """And what inference has kept of the spline serves training."""
    model, image = vit(pe_type='beit', qkv_bias='qv'), torch.randn(1, 3, 48, 24)
    with torch.inference_mode():
        expected = model(image)[0].clone()
    torch.compiler.reset()  # else sizes that an earlier test has changed are open here
    compiled = torch.compile(model, backend='eager', fullgraph=True)(image)[0]
    torch.testing.assert_close(compiled, expected, atol=1e-4, rtol=1e-4)
    compiled.sum().backward()
    model(image)[0].sum().backward()
    torch.compiler.reset()


def test_entries_of_the_class_token():
    attn, encoding = attached(2, num_prefix=1)
    table, q = getattr(attn, TABLE).detach(), torch.zeros(1, 3, 5, 8, dtype=torch.float64)
    bias = encoding.logits(attn, q, q, (2, 2))[0].detach()
    torch.testing.assert_close(bias[:, 0, 1:], table[-3][:, None].expand(3, 4))
    torch.testing.assert_close(bias[:, 1:, 0], table[-2][:, None].expand(3, 4))
    torch.testing.assert_close(bias[:, 0, 0], table[-1])
    torch.testing.assert_close(bias[:, 1:, 1:], encoding.bias(attn, (2, 2)).detach())


def test_biases_of_queries_and_values():
    """They are a complete bias whose part for keys is zero."""
    some, every = MultiheadAttention(24, 3, qkv_bias='qv'), MultiheadAttention(24, 3)
    randomise(some)
    every.load_state_dict(
        {name: value for name, value in some.state_dict().items() if '_bias' not in name}, strict=False
    )
    with torch.no_grad():
        every.qkv.bias.copy_(torch.cat((some.q_bias, torch.zeros(24), some.v_bias)))
    x = torch.randn(2, 6, 24)
    torch.testing.assert_close(some(x, (2, 3)), every(x, (2, 3)))


@pytest.mark.parametrize('qkv_bias', [True, 'qv', False])
def test_windows_padded_before_qkv(qkv_bias):
    """The same as a grid that has been padded to complete windows."""
    options = dict(qkv_bias=qkv_bias, window_size=3)
    before = randomise(MultiheadAttention(24, 3, window_padding='before-qkv', **options))
    after = MultiheadAttention(24, 3, **options)
    after.load_state_dict(before.state_dict())
    x = torch.randn(2, 4, 5, 24)
    padded = after(F.pad(x, (0, 0, 0, 1, 0, 2)).flatten(1, 2), (6, 6)).view(2, 6, 6, 24)[:, :4, :5]
    torch.testing.assert_close(before(x.flatten(1, 2), (4, 5)), padded.flatten(1, 2))
    same = torch.allclose(after(x.flatten(1, 2), (4, 5)), padded.flatten(1, 2), atol=1e-4)
    assert same == (qkv_bias is False)


def test_one_layer_can_fill_every_map():
    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=32)
    one, four = (randomise(ViTPyramid(arch, 32, out_indices=layers)) for layers in (1, [1] * 4))
    four.load_state_dict(one.state_dict())
    image = torch.randn(1, 3, 64, 32)
    assert all(torch.equal(a, b) for a, b in zip(one(image), four(image), strict=True))
