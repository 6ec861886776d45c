"""Position embedding tables against their formulas, and the one resize against torch's own and its properties."""

import math

import pytest
import torch
import torch.nn.functional as F

from mmlape.errors import ConfigError
from mmlape.models.position.absolute import sincos_1d, sincos_2d
from mmlape.models.position.base import resize_absolute
from mmlape.models.position.relative_bias import offset_index


def test_sincos_1d_is_the_formula():
    table = sincos_1d(7, 12)
    for position in range(7):
        for channel in range(12):
            angle = position / 10000 ** (2 * (channel // 2) / 12)
            expected = math.sin(angle) if channel % 2 == 0 else math.cos(angle)
            assert table[position, channel].item() == pytest.approx(expected, abs=1e-6)


def test_sincos_2d_first_half_is_the_column_second_half_the_row():
    table = sincos_2d((3, 5), 16, num_prefix=2)
    assert table.shape == (2 + 15, 16)
    assert table[:2].abs().max() == 0
    by_column, by_row = sincos_1d(5, 8), sincos_1d(3, 8)
    for row in range(3):
        for column in range(5):
            cell = table[2 + row * 5 + column]
            torch.testing.assert_close(cell, torch.cat((by_column[column], by_row[row])))


def test_sincos_2d_refuses_odd_widths():
    with pytest.raises(ConfigError, match='multiple of 4'):
        sincos_2d((2, 2), 18)


def test_resize_to_the_same_grid_is_the_identity():
    pe = torch.randn(1, 1 + 12, 8)
    assert resize_absolute(pe, (3, 4), (3, 4), num_prefix=1) is pe


def test_resize_keeps_prefix_rows_and_interpolates_the_rest():
    pe = torch.randn(1, 2 + 12, 8)
    out = resize_absolute(pe, (3, 4), (5, 7), num_prefix=2)
    assert torch.equal(out[:, :2], pe[:, :2])
    image = pe[:, 2:].transpose(1, 2).reshape(1, 8, 3, 4)
    expected = F.interpolate(image, size=(5, 7), mode='bicubic', align_corners=False, antialias=False)
    torch.testing.assert_close(out[:, 2:], expected.flatten(2).transpose(1, 2))


def test_resize_matches_timm_without_antialiasing():
    from timm.layers import resample_abs_pos_embed

    pe = torch.randn(1, 1 + 49, 8)
    ours = resize_absolute(pe, (7, 7), (10, 4), num_prefix=1)
    timms = resample_abs_pos_embed(pe, [10, 4], num_prefix_tokens=1, antialias=False)
    torch.testing.assert_close(ours, timms, atol=1e-5, rtol=0)


def test_resize_refuses_a_table_of_another_grid():
    with pytest.raises(ValueError, match='15 rows is not 1 prefix rows and a 3x4 grid'):
        resize_absolute(torch.randn(1, 15, 8), (3, 4), (3, 4), num_prefix=1)


def test_relative_index_counts_query_minus_key():
    rows, columns = 3, 4
    index = offset_index((rows, columns))
    for query in range(12):
        for key in range(12):
            down = query // columns - key // columns + rows - 1
            right = query % columns - key % columns + columns - 1
            assert index[query, key] == down * (2 * columns - 1) + right
