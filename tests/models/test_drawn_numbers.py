"""The numbers behind figures and lists, with small inputs counted by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from irpe_buckets import bucket_map
from paper_costs import _change, _measure
from PIL import Image
from properties import examples
from scipy import stats

from mmlape.console.tables import rows_of
from mmlape.lab.analysis.cost import _attention_flops
from mmlape.lab.analysis.gradient_norms import GradientNorms, _spread
from mmlape.lab.inference.trained_graph import _mean_share
from mmlape.models import VisionTransformer
from mmlape.models.position.irpe import Buckets
from mmlape.projects.pe_figures.bias_maps import bias_terms, read_images, write_bias_maps
from mmlape.projects.pe_figures.position import cosines, view_positions
from mmlape.projects.size_sweep import sweep as size_sweep

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=16)


def rows_by_columns(**options):
    """A ViT on 3 x 5 patches of 4 pixels."""
    return VisionTransformer(ARCH, (12, 20), 4, **options).eval()


# gradient norms


def arm():
    first = {step: dict(patch_embed=float(step), all=100.0 + step**2) for step in (1, 2, 3, 5, 8)}
    second = {step: dict(patch_embed=2.0 * step, all=1.0) for step in (2, 3, 8)}
    return GradientNorms('arm', runs={Path('a'): first, Path('b'): second})


def test_norms_by_depth_are_means_of_the_last_iterations():
    """The last 5 iterations of 8 are 4 to 8, logged or not; each run has its own."""
    assert arm().by_depth(5).tolist() == [[6.5, (125 + 164) / 2], [16.0, 1.0]]
    assert arm().by_depth(6).tolist() == [[16 / 3, (109 + 125 + 164) / 3], [11.0, 1.0]]
    assert arm().by_depth(1).tolist() == [[8.0, 164.0], [16.0, 1.0]]


def test_norms_over_time_are_of_the_common_iterations():
    steps, norms = arm().over_time('patch_embed')
    assert steps.tolist() == [2, 3, 8] and norms.tolist() == [[2, 3, 8], [4, 6, 16]]
    assert _spread(norms).tolist() == pytest.approx((np.array([2, 3, 8]) / np.sqrt(2)).tolist())
    assert _spread(norms[:1]).tolist() == [0, 0, 0]


# sizes


def test_values_of_a_sweep_are_points_drawn_with_their_intervals(tmp_path, monkeypatch):
    key = 'coco/bbox_mAP'
    results = {name: {8: {key: value}} for name, value in zip('abcd', (0.4, 0.5, 0.6, 0.9))}
    results['d'][4] = {key: -1}  # of no object
    models = [size_sweep.Swept('y' if name == 'd' else 'x', seed, name, None) for seed, name in enumerate('abcd')]
    drawn = []
    monkeypatch.setattr('matplotlib.axes.Axes.errorbar', lambda self, *args, **more: drawn.append(args))
    report = size_sweep.build_report(models, results, key, 'title')
    size_sweep.draw_sweep(report, key, [8], 'size', tmp_path / 'drawn.png')
    half = stats.t.ppf(0.975, 2) * 10 / 3**0.5
    assert rows_of(size_sweep.sweep_table(report, key, [8])) == [
        ('x', 3, f'50.00 [{50 - half:.2f}, {50 + half:.2f}]'), ('y', 1, '90.00')
    ]  # fmt: skip
    points = [(list(sizes), list(heights), np.ravel(bars).tolist()) for sizes, heights, bars in drawn]
    assert points == [([8], [pytest.approx(50)], pytest.approx([half, half])), ([8], [pytest.approx(90)], [0, 0])]


# position


def test_a_tokens_row_is_the_one_at_its_place():
    """A table of random rows on a grid that is no square, against cosines by hand."""
    model = rows_by_columns()
    torch.nn.init.normal_(model.pos_embed)
    view = view_positions(model, 'm', token=(2, 1), layers=[0])
    table = model.pos_embed[0, 1:].detach().double().numpy()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    pe = view.layers[0]
    assert (pe.label, pe.token, view.grid, view.token) == ('PE', (2, 1), (3, 5), (2, 1))
    np.testing.assert_allclose(pe.row, (unit @ unit[2 * 5 + 1]).reshape(3, 5), atol=1e-12)
    np.testing.assert_allclose(pe.pairs, unit @ unit.T, atol=1e-6)
    assert view_positions(model, 'm').token == (1, 2), 'the centre'


def test_cosines_are_computed_in_float64():
    pe = torch.tensor([[1.0, 1e-5], [1.0, -1e-5]])
    assert 1 - cosines(pe)[0, 1] == pytest.approx(2e-10, rel=1e-3)


def test_the_bias_of_a_patch_is_the_mean_over_images_and_heads(tmp_path):
    """The live terms themselves, without the class token's row and column; one patch's as a map."""
    model = rows_by_columns(pe_type=['learnable', dict(type='irpe', on='k')])
    for name, parameter in model.named_parameters():
        if 'rpe' in name or 'lookup' in name or 'table' in name:
            torch.nn.init.normal_(parameter)
    images, terms = torch.randn(3, 3, 12, 20), []
    encoding = model.blocks[1].attn.encodings[0]
    kind = type(encoding)

    def kept(attn, q, k, grid):
        terms.append(kind.logits(encoding, attn, q, k, grid))
        return terms[-1]

    found = bias_terms(model, images)
    encoding.logits = kept
    model(images)
    del encoding.logits
    assert terms[0].shape == (3, 2, 16, 16)
    expected = terms[0].detach().double().numpy().mean(axis=(0, 1))[1:, 1:]
    np.testing.assert_allclose(found[1].detach().numpy(), expected, atol=1e-6)
    assert np.abs(expected - expected.T).max() > 1e-3
    write_bias_maps('m', model, tmp_path, [1], [(2, 1)])
    row = bias_terms(model, read_images((), model))[1][2 * 5 + 1].reshape(3, 5)
    np.testing.assert_allclose(np.load(tmp_path / 'bias_maps.npz')['layer1_cell2_1'], row.numpy(), atol=1e-6)


def test_images_are_resized_to_the_grid_and_normalised(tmp_path):
    Image.fromarray(np.full((7, 9, 3), (255, 0, 128), np.uint8)).save(tmp_path / 'a.png')
    found = read_images([tmp_path / 'a.png'], rows_by_columns())
    assert found.shape == (1, 3, 12, 20)
    expected = (np.array([255, 0, 128]) - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]
    np.testing.assert_allclose(found[0, :, 4, 11], expected, rtol=1e-5)
    assert not read_images((), rows_by_columns()).any()


def test_the_buckets_of_a_patch_are_its_own():
    for_rows, for_columns = bucket_map(Buckets('cross', 1.9, 3.8, 15.2), (3, 5), (2, 1))
    assert for_rows.shape == (3, 5) and len(set(for_rows[0])) == 1 and len(set(for_rows[:, 0])) == 3
    assert len(set(for_columns[:, 1])) == 1 and len(set(for_columns[0])) > 2
    same = bucket_map(Buckets('cross', 1.9, 3.8, 15.2), (3, 5), (0, 0))
    assert same[0][0, 0] == for_rows[2, 1] and same[1][0, 0] == for_columns[2, 1]


# graphs


@examples(max_examples=50)
@given(st.lists(st.one_of(st.floats(0, 1), st.just(np.nan))))
def test_a_share_of_equal_labels_is_over_the_images_with_objects(shares):
    """Written once more by pandas, whose mean leaves NaN out, and of nothing is NaN."""
    assert _mean_share(shares) == pytest.approx(pd.Series(shares, dtype=float).mean(), nan_ok=True)


# papers


def test_both_products_of_attention_are_counted():
    """Of 3 queries and 5 keys of 4 numbers, whose values have 6, in 2 heads; two for a multiply-add."""
    assert _attention_flops((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)) == 2 * 2 * (3 * 5 * 4 + 3 * 5 * 6)


def test_changes_are_of_the_first_figure():
    assert _change(200, 210) == '+5.00 %' and _change(200, 150) == '-25.00 %'


def test_times_are_medians_without_the_first_step(monkeypatch):
    clock = iter([0, 0, *(at for took in (5, 7, 1, 2, 9, 30) for at in (0, took))])
    monkeypatch.setattr('paper_costs.time.perf_counter', lambda: next(clock))
    arms = dict(a=torch.nn.Identity(), b=torch.nn.Identity())
    seconds, memory = _measure(arms, lambda model, images: images.shape[0], 'cpu', 2, 3)
    assert seconds == dict(a=5, b=7) and memory == dict(a=2, b=2)
