"""The benchmarks: what a real run writes, its arithmetic, and what it counts; never how fast anything is."""

import itertools
import json
import re
import statistics
import sys

import forking_python
import numpy as np
import pytest
import tiny
import torch
from tiny import ROOT
from torch import nn

from benchmarks import agreement, disturbance, floor, memory, timing
from benchmarks.comparison import Comparison, Settings
from benchmarks.measure import measure, measure_memory
from benchmarks.suites import SUITES, adapter, comparisons
from mmlape.models import VisionTransformer

TINY = ('--quick', '--arch', 'mini', '--sizes', '64', '--batch', '1', '--threads', '1')


def bench(*words: str, status: int = 0) -> str:
    return tiny.run(sys.executable, '-m', 'benchmarks', *words, cwd=ROOT, status=status)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A real run of a suite: the result file, the page, and what was printed."""
    out = tmp_path_factory.mktemp('benchmarks')
    printed = bench('joining', *TINY, '--out', str(out))
    return json.loads((out / 'results.json').read_text()), (out / 'results.md').read_text(), printed


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


def test_bad_options_are_said_before_anything_is_measured(tmp_path):
    (tmp_path / 'file').touch()
    assert f'--out {tmp_path}/file: File exists' in bench('joining', *TINY, '--out', f'{tmp_path}/file', status=1)


def test_memory_grows_with_the_batch(monkeypatch):
    """Of two children, the one with 64 times the images takes the more memory; a side that does not exist fails."""
    monkeypatch.setattr(memory.sys, 'executable', forking_python.executable())
    peaks = []
    for batch in (1, 64):
        settings = Settings(arch='mini', size=64, batch=batch)
        comparison = next(one for one in comparisons('joining', settings) if one.memory)
        (name, side), *_ = comparison.sides.items()
        measured = measure_memory('joining', Comparison(comparison.name, {name: side}), settings)
        peaks.append(measured.values[name]['memory_mib'])
    assert 0 < 2 * peaks[0] < peaks[1]
    assert not measure_memory('joining', Comparison(comparison.name, {'nothing': side}), settings).ok


class Judge:
    """A watch that judges one round after the other."""

    def __init__(self, verdicts):
        self.verdicts, self.repeated, self.disturbed = iter(verdicts), 0, 0

    def start(self):
        pass

    def long_enough(self):
        return True

    def calm(self):
        return next(self.verdicts)


def test_rounds_alternate_are_at_least_nine_and_disturbed_ones_are_repeated():
    order = []
    works = [lambda name=name: order.append(name) for name in 'AB']
    timing.interleave(works, 'cpu', 4, budget=60, warm_up=0)
    assert ''.join(order) == 'ABBAABBA'
    assert len(timing.interleave([lambda: None], 'cpu', 50, budget=0, warm_up=0)[0]) == 9
    for verdicts, rounds, repeated, disturbed in (([True, False, True, True], 4, 1, 0), ([False] * 6, 6, 3, 3)):
        judge, calls = Judge(verdicts), itertools.count()
        (kept,) = timing.interleave([lambda calls=calls: next(calls)], 'cpu', 3, budget=60, warm_up=0, watch=judge)
        assert (len(kept), next(calls)) == (3, rounds)
        assert (judge.repeated, judge.disturbed) == (repeated, disturbed)


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


def test_flops_of_a_vit_are_those_of_the_cost_model():
    from mmlape.lab.analysis.cost import _Counter

    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64)
    model, images = VisionTransformer(arch, 64, patch_size=8).eval(), torch.randn(1, 3, 64, 64)
    with torch.no_grad(), _Counter(model) as counter:
        model(images)
    with torch.no_grad():
        assert floor.count(lambda: model(images))['flops'] == 2 * counter.multiply_adds()


def test_a_side_that_fails_is_named_and_the_others_are_measured(monkeypatch):
    def broken():
        raise RuntimeError('no such kernel\nand a long story')

    monkeypatch.setattr(disturbance.Watch, 'calm', lambda watch: False)
    sides = dict(good=lambda: lambda: None, bad=broken, other=lambda: lambda: None)
    measured = measure(Comparison('case', sides), Settings(repeats=3, budget=0.1, quick=True))
    assert not measured.ok and measured.figure.startswith('bad: RuntimeError: no such kernel; good ')
    assert 'ratio' in measured.values['other'] and set(measured.values) == {'good', 'other'}
    assert 'DISTURBED: other processes used the processors in 3 of the rounds' in measured.figure


@pytest.mark.parametrize('arch', ['deit-tiny', 'deit-base', 'deit-large', 'mini'])
def test_every_comparison_has_a_name_of_its_own(arch):
    for suite in SUITES:
        names = [one.name for one in comparisons(suite, Settings(arch=arch, public='somewhere'))]
        assert len(set(names)) == len(names) > 5


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


def test_public_and_own_adapter_are_compared_off_the_borders_of_cells(monkeypatch):
    """Fresh offsets are integers; a place on a border has two gradients, so rounding decides which one is shown."""

    def public_adapter(settings, weights):
        with torch.no_grad():
            for name, weight in weights.items():
                if name.endswith('level_embed'):
                    weight += 1e-7  # rounding of another kind
        model = adapter.adapter(settings)
        model.load_state_dict(weights)
        return model

    monkeypatch.setattr(adapter, 'public_adapter', public_adapter)
    beside = comparisons('adapter', Settings(arch='mini', size=64, batch=1, public='somewhere'))[0]
    note = beside.note()
    assert re.fullmatch(r'outputs \de-\d\d, gradients \de-0[4-9] apart, with random sampling offsets', note), note


def test_a_checkout_must_be_one(tmp_path):
    beside = comparisons(
        'adapter', Settings(arch='mini', size=64, batch=1, repeats=3, quick=True, public=str(tmp_path))
    )
    measured = measure(beside[1], Settings(size=64, batch=1, repeats=3, quick=True))
    assert not measured.ok and f'{tmp_path} has no detection/' in measured.figure and 'mmlape' in measured.values


@pytest.mark.parametrize(('own', 'calm'), [(1.95, True), (1.5, False)])
def test_processor_time_of_others_disturbs(monkeypatch, own, calm):
    """In a second of two processors, all processes used two; 5 % of the processors may be others'."""
    clocks = {name: itertools.chain([0.0], itertools.repeat(value)) for name, value in (('all', 2.0), ('own', own))}
    monkeypatch.setattr(disturbance, 'machine_seconds', lambda: next(clocks['all']))
    monkeypatch.setattr(disturbance, 'own_seconds', lambda: next(clocks['own']))
    monkeypatch.setattr(disturbance.time, 'perf_counter', itertools.chain([0.0], itertools.repeat(1.0)).__next__)
    monkeypatch.setattr(disturbance.os, 'cpu_count', lambda: 2)
    assert disturbance.Watch().calm() is calm
