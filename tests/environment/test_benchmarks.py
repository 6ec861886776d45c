"""The benchmarks: what a real run writes, its intervals; never how fast anything is."""

import json
import statistics
import sys

import numpy as np
import pytest
import tiny
import torch
from timm.layers import PatchEmbed
from tiny import ROOT
from torch import nn

from benchmarks import agreement, timing
from benchmarks.comparison import Settings
from benchmarks.suites.frozen import predicting, training

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


def test_a_frozen_vit_runs_as_often_as_a_side_says(monkeypatch):
    passes, forward = [], PatchEmbed.forward
    counted = lambda self, images: passes.append(len(images)) or forward(self, images)  # noqa: E731
    monkeypatch.setattr(PatchEmbed, 'forward', counted)
    settings = Settings(arch='mini', size=64, batch=2)
    for work, expected in (
        (training(settings, 0), [2, 2]),
        (training(settings, 2), []),
        (predicting(settings, shared=False), [2] * 4),
        (predicting(settings, shared=True), [2, 2]),
    ):
        passes.clear()
        work()
        work()
        assert passes == expected


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


def test_a_wrong_gradient_is_seen_that_a_mean_hides():
    """Reversed gradients: those of a mean are equal everywhere, so that reversing them changes nothing."""

    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.flip(1)

    class Model(nn.Module):
        def __init__(self, wrong: bool):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.wrong = nn.Linear(8, 8), wrong

        def forward(self, x):
            return Reversed.apply(self.layer(x)) if self.wrong else self.layer(x)

    images = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    right, wrong, again = (agreement.outputs_and_gradients(Model(wrong), images) for wrong in (False, True, False))
    assert agreement.agreement(wrong, right).startswith('NOT the same function: outputs 0e+00, gradients ')
    assert agreement.agreement(again, right) == 'outputs 0e+00, gradients 0e+00 apart'
