"""The benchmarks: what a real run writes, its intervals, and what it counts; never how fast anything is."""

import json
import statistics
import sys

import numpy as np
import pytest
import tiny
import torch
from tiny import ROOT
from torch import nn

from benchmarks import floor, timing

TINY = ('--quick', '--arch', 'mini', '--sizes', '64', '--batch', '1', '--threads', '1')


def bench(*words: str, status: int = 0) -> str:
    return tiny.run(sys.executable, '-m', 'benchmarks', *words, cwd=ROOT, status=status)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A real run of a suite: the result file, the page, and what was printed."""
    out = tmp_path_factory.mktemp('benchmarks')
    printed = bench('joining', *TINY, '--out', str(out))
    return json.loads((out / 'results.json').read_text()), (out / 'results.md').read_text(), printed


@pytest.mark.release
def test_figures_follow_from_the_samples(run):
    results, page, printed = run
    assert results['machine']['threads'] == 1 and results['versions']['torch'] == torch.__version__.split('+')[0]
    assert results['command'].startswith('python -m benchmarks joining --quick') and results['command'] in page
    assert results['finished'] and len(results['lines']) == 11
    for line in results['lines']:
        assert line['status'] == 'PASS' and line['name'] in page and line['name'] in printed
        reference, *others = line['values'].values()
        for side in (reference, *others):
            assert side['median'] == pytest.approx(statistics.median(side['seconds'])) and min(side['seconds']) > 0
            assert side['images_per_second'] == pytest.approx(1 / side['median'])
        for side in others:
            assert side['ratio']['value'] == pytest.approx(side['median'] / reference['median'])
            assert side['ratio']['low'] is None, 'three rounds are too few'


def test_ratio_interval_covers_the_truth_and_ignores_a_common_drift():
    """Of intervals for samples with a known ratio of medians, about 95 % hold it."""
    random = np.random.RandomState(0)
    held = 0
    for _ in range(40):
        ratio = timing.ratio(random.normal(3.0, 0.1, 25), random.normal(2.0, 0.1, 25))
        held += ratio['low'] <= 1.5 <= ratio['high']
    assert 34 <= held <= 40
    drift = np.linspace(1, 5, 15)
    ratio = timing.ratio(1.25 * drift, drift)
    assert ratio['low'] == pytest.approx(1.25) == ratio['high']
    assert timing.ratio(drift[:8], drift[:8])['low'] is None, 'an interval needs nine rounds'


def test_flops_and_bytes_are_those_of_the_formulas():
    """A linear layer, a convolution and attention, forward; and three times the forward for forward + backward."""
    linear = nn.Linear(32, 64)
    assert floor.count(lambda: linear(torch.randn(5, 32)))['flops'] == 2 * 5 * 32 * 64
    conv = nn.Conv2d(3, 8, 3, padding=1)
    assert floor.count(lambda: conv(torch.randn(1, 3, 10, 10)))['flops'] == 2 * 9 * 3 * 8 * 100
    q = torch.randn(2, 4, 16, 8)
    attended = floor.count(lambda: nn.functional.scaled_dot_product_attention(q, q, q))['flops']
    assert attended == 2 * 2 * 2 * 4 * 16 * 16 * 8
    x = torch.randn(5, 32, requires_grad=True)
    assert floor.count(lambda: linear(x).sum().backward())['flops'] == 3 * 2 * 5 * 32 * 64
    assert floor.count(lambda: (q + q).view(-1))['bytes'] == 3 * 4 * q.numel()
    matrix, dense = torch.eye(100).to_sparse_csr(), torch.randn(100, 4)
    moved = floor.count(lambda: torch.sparse.sampled_addmm(matrix, dense, dense.t(), beta=0))['bytes']
    assert moved < 100 * 100 * 4, 'a sparse matrix counts what it holds'
