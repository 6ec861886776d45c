"""The benchmarks: what a real run writes, its arithmetic, and what it counts; never how fast anything is."""

import copy
import itertools
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import forking_python
import numpy as np
import pytest
import tiny
import torch
from tiny import ROOT
from torch import nn

from benchmarks import agreement, disturbance, floor, memory, report, timing
from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.measure import measure
from benchmarks.suites import SUITES, comparisons, recipes, startup
from mmlape.errors import ConfigError
from mmlape.models import VisionTransformer

TINY = ('--quick', '--arch', 'mini', '--sizes', '64')


def bench(*words: str, status: int = 0, **more: str) -> str:
    return tiny.run(sys.executable, '-m', 'benchmarks', *words, cwd=ROOT, status=status, **more)


@pytest.fixture(scope='module', params=tiny.PYTHONS)
def run(request, tmp_path_factory) -> tuple[Path, dict, str]:
    """A real run of a suite: the folder, the result file, and what was printed."""
    out = tmp_path_factory.mktemp('benchmarks')
    printed = bench('deform', *TINY, '--threads', '1', '--out', str(out), **request.param)
    return out, json.loads((out / 'results.json').read_text()), printed


def test_result_file_says_machine_versions_and_command(run):
    _, results, printed = run
    assert results['machine']['cores'] >= 1 and results['machine']['threads'] == 1
    assert results['versions']['torch'] == torch.__version__.split('+')[0]
    assert results['command'].startswith('python -m benchmarks deform --quick --arch mini')
    assert results['finished'] >= results['started']
    assert set(results['rates']) == {'cpu fp32'}
    assert f'[1/{len(results["results"])}, ' in printed and ' left]' in printed


def test_figures_follow_from_the_samples(run):
    _, results, _ = run
    rates = results['rates']['cpu fp32']
    for result in results['results']:
        medians = {side['name']: statistics.median(side['samples']) for side in result['sides']}
        for side in result['sides']:
            centre = medians[side['name']]
            assert side['n'] == len(side['samples']) >= 3 and min(side['samples']) > 0
            assert side['median'] == pytest.approx(centre)
            assert side['mad'] == pytest.approx(statistics.median(abs(s - centre) for s in side['samples']))
            if result['items']:
                assert side['items_per_second'] == pytest.approx(result['items'] / centre)
            if 'flops' in side:
                assert side['of_matrix_rate'] == pytest.approx(side['flops'] / centre / rates['matrix'])
                assert side['of_bandwidth'] == pytest.approx(side['bytes'] / centre / rates['bandwidth'])
        names = [side['name'] for side in result['sides']]
        assert [ratio['side'] for ratio in result['ratios']] == names[1:] and not result['failed']
        for ratio in result['ratios']:
            assert ratio['value'] == pytest.approx(medians[ratio['side']] / medians[names[0]])
            assert ratio['low'] is ratio['high'] is None  # three rounds are too few


def test_page_has_a_row_a_side(run):
    out, results, _ = run
    page = (out / 'results.md').read_text()
    rows = [line for line in page.splitlines() if line.startswith('| ') and not line.startswith(('| case', '| ---'))]
    assert len(rows) == sum(len(result['sides']) for result in results['results'])
    assert f'`{results["command"]}`' in page and results['machine']['processor'] in page


def test_compare_sets_medians_against_each_other(run, tmp_path):
    out, results, _ = run
    results = copy.deepcopy(results)
    for result in results['results']:
        for side in result['sides']:
            side['samples'] = [2 * sample for sample in side['samples']]
            side['median'] *= 2
    results['versions']['torch'] = '0.0'
    (tmp_path / 'slower.json').write_text(json.dumps(results))
    printed = bench('compare', str(out / 'results.json'), str(tmp_path / 'slower.json'))
    rows = [line for line in printed.splitlines() if line.startswith('| ')][2:]
    assert len(rows) == sum(len(result['sides']) for result in results['results'])
    assert all(row.endswith('| 2.000 |') for row in rows)
    assert 'versions: torch' in printed and '-> 0.0' in printed


def test_compare_refuses_other_files(tmp_path):
    for content in ('{}', '{"results": []}', '[]', '{'):
        (tmp_path / 'a.json').write_text(content)
        with pytest.raises(ConfigError, match='a.json is not a result file'):
            report.read(tmp_path / 'a.json')
    assert 'b.json is not a result file' in bench('compare', str(tmp_path / 'b.json'), 'a.json', status=1)


def test_bad_options_are_said_before_anything_is_measured(tmp_path):
    assert '--repeats: 0 is not a positive number' in bench('joining', *TINY, '--repeats', '0', status=2)
    (tmp_path / 'file').touch()
    assert f'--out {tmp_path}/file: File exists' in bench('joining', *TINY, '--out', f'{tmp_path}/file', status=1)


def test_memory_grows_with_the_batch(monkeypatch):
    """Of two children, the one with 64 times the images takes the more memory."""
    monkeypatch.setattr(memory.sys, 'executable', forking_python.executable())
    found = []
    for batch in (1, 64):
        settings = Settings(arch='mini', sizes=(64,), batch=batch)
        comparison = comparisons('memory', settings)[0]
        found.append(memory.peak_memory(comparison, comparison.sides[0].name, settings))
    assert 0 < 2 * found[0] < found[1]


def test_rounds_alternate():
    order = []
    works = [lambda name=name: order.append(name) for name in 'AB']
    samples = timing.interleave(works, 'cpu', 4, budget=60, warm_up=0)
    assert ''.join(order) == 'ABBAABBA'
    assert [len(side) for side in samples] == [4, 4]


def test_budget_leaves_nine_rounds():
    samples = timing.interleave([lambda: None], 'cpu', 50, budget=0, warm_up=0)
    assert len(samples[0]) == 9


def test_interval_needs_nine_rounds():
    assert timing.ratio(range(2, 10), range(1, 9), paired=True)['low'] is None
    found = timing.ratio(range(2, 11), range(1, 10), paired=True)
    assert report.interval(found) == f'1.200 [{found["low"]:.3f}, {found["high"]:.3f}]'


def test_ratio_interval_covers_the_truth():
    """Of intervals for samples with a known ratio of medians, about 95 % hold it."""
    random = np.random.RandomState(0)
    held = 0
    for _ in range(40):
        a, b = random.normal(3.0, 0.1, 25), random.normal(2.0, 0.1, 25)
        found = timing.ratio(a, b, paired=False)
        held += found['low'] <= 1.5 <= found['high']
    assert 34 <= held <= 40


def test_paired_ratio_ignores_a_common_drift():
    drift = np.linspace(1, 5, 15)
    found = timing.ratio(1.25 * drift, drift, paired=True)
    assert found['low'] == pytest.approx(1.25) and found['high'] == pytest.approx(1.25)


def test_flops_are_those_of_the_formulas():
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


def test_flops_of_a_vit_are_those_of_the_cost_model():
    from mmlape.lab.analysis.cost import _Counter

    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64)
    model = VisionTransformer(arch, 64, patch_size=8).eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        counter = _Counter(model)
        with counter:
            model(images)
        assert floor.count(lambda: model(images))['flops'] == 2 * counter.multiply_adds()


def test_bytes_of_an_addition():
    x = torch.randn(1000)
    assert floor.count(lambda: (x + x).view(10, 100))['bytes'] == 3 * 4000


def test_a_side_that_fails_is_named_and_the_others_are_measured():
    def broken():
        raise RuntimeError('no such kernel\nand a long story')

    sides = [Side('good', lambda: lambda: None), Side('bad', broken), Side('other', lambda: lambda: None)]
    comparison = Comparison('suite', 'case', 'work', '1', '-', sides, timed=False, counted=False)
    result = measure(comparison, Settings(repeats=3, budget=0.1), None)
    assert [side['name'] for side in result['sides']] == ['good', 'other']
    assert result['failed'] == {'bad': 'RuntimeError: no such kernel'}
    assert [ratio['side'] for ratio in result['ratios']] == ['other']


@pytest.mark.parametrize('device', ['cpu', 'cuda'])
@pytest.mark.parametrize('arch', ['deit-tiny', 'deit-base', 'deit-large', 'mini'])
def test_every_comparison_has_a_key_of_its_own(device, arch, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    checkouts = dict.fromkeys(('vit-adapter', 'lape', 'dinov3', 't2t', 'ceit', 'compact'), '')
    settings = Settings(device=device, arch=arch, dtypes=('fp32', 'bf16'), sizes=(224, 512), checkouts=checkouts)
    for suite in SUITES:
        keys = [comparison.key for comparison in comparisons(suite, settings)]
        assert len(set(keys)) == len(keys)
        without_peer = suite in ('models', 'export') and arch in ('deit-base', 'deit-large')
        without_peer |= suite == 'export' and device == 'cuda'
        assert bool(keys) is not without_peer


def test_recipes_build_over_public_backbones_and_train_on_the_same_batches(pristine):
    settings = Settings(arch='mini', sizes=(64,), data=str(pristine))
    found = comparisons('recipes', settings)
    assert [one.case.split(',')[0] for one in found] == list(recipes.RECIPES)
    for one in found[::3]:  # without and with an adapter, ADE20K and COCO
        for side in one.sides:
            step = side.build()
            if one is found[0]:
                step()
    loaders = []
    for side in ('mmseg.VisionTransformer', 'LaPE'):
        cfg = recipes.recipe(settings, 'Segmenter', side, 64 / 512)
        assert cfg.model.decode_head.num_classes == 150
        loaders.append(recipes.endless_batches(cfg))
    for _ in range(3):
        one, other = (next(loader)['inputs'] for loader in loaders)
        assert one[0].shape == (3, 64, 64) and all(map(torch.equal, one, other))


def test_startup_measures_the_processor_time_of_a_process():
    sides = {side.name: side for side in comparisons('startup', Settings())[0].sides}
    assert set(sides) >= {'python', 'import mmlape', 'mmlape --help', 'mmlape train --help'}
    assert 0 < sides['python'].build()() < sides['mmlape train --help'].build()()
    with pytest.raises(RuntimeError, match='ended with 1: no such thing'):
        startup.processor_seconds([sys.executable, '-c', 'raise SystemExit("no such thing")'])


@pytest.mark.release
def test_startup_ends_at_the_first_iteration(pristine):
    """The training process reaches its first iteration: it ends with an error where it does not."""
    training = comparisons('startup', Settings(data=str(pristine)))[1]
    (side,) = (side for side in training.sides if side.name.startswith('Segmenter'))
    assert side.build()() > 0


def test_swin_peers_compute_the_same_with_our_weights():
    notes = [comparison.note for comparison in comparisons('swin', Settings(arch='mini', batch=1))]
    found = [note() for note in notes[:4:2]]
    assert all('outputs' in text and 'NOT' not in text for text in found), found


def test_peers_compute_the_same_with_our_weights():
    from benchmarks.agreement import patch_tokens
    from benchmarks.models import vit
    from benchmarks.peers import PEERS

    settings = Settings(arch='mini')
    ours = vit(settings, 64)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        images = torch.randn(2, 3, 64, 64)
        ours.eval()
        for build, _ in PEERS.values():
            theirs = build(settings, 64, ours.state_dict())
            theirs.eval()
            torch.testing.assert_close(patch_tokens(ours(images)), patch_tokens(theirs(images)), atol=1e-5, rtol=1e-4)


NOTES = """
import json, sys
from benchmarks.comparison import Settings
from benchmarks.suites import comparisons
found = comparisons(sys.argv[1], Settings(arch='mini', sizes=(64,), batch=2))
print(json.dumps({one.case: one.note() for one in found if one.work != 'forward' and callable(one.note)}))
"""


def notes(suite: str) -> dict[str, str]:
    """The notes of a suite's comparisons of a backward, by case, from a process of its own as the command is one."""
    return json.loads(tiny.run(sys.executable, '-c', NOTES, suite, cwd=ROOT).splitlines()[-1])


@pytest.mark.parametrize('suite, cases', [('backbone', 3), ('deform', 1)])
def test_gradients_of_a_backward_are_compared(suite, cases):
    found = notes(suite)
    assert len(found) == cases
    for note in found.values():
        distances = re.findall(r'gradients (\S+) apart', note)
        assert distances and all(float(distance) < 1e-3 for distance in distances) and 'NOT' not in note, note


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
    right, wrong = (Model(wrong) for wrong in (False, True))
    for model in (right, wrong):
        model(images).mean().backward()
    torch.testing.assert_close(right.layer.weight.grad, wrong.layer.weight.grad)
    found = [agreement.outputs_and_gradients(model, images) for model in (right, wrong, Model(False))]
    assert agreement.agreement(found[1], found[0]).startswith('NOT the same function: outputs 0e+00, gradients ')
    assert agreement.agreement(found[2], found[0]) == 'outputs 0e+00, gradients 0e+00 apart'


def test_a_checkout_must_be_one(tmp_path):
    printed = bench('public', *TINY, '--lape', str(tmp_path), '--out', str(tmp_path / 'out'))
    assert 'did not run: ConfigError' in printed and 'vision_transformer.py' in printed


class Judge:
    """A watch that finds the given stretches disturbed, each of one round."""

    def __init__(self, verdicts):
        self.verdicts, self.repeated, self.disturbed = iter(verdicts), 0, 0

    def start(self):
        pass

    def long_enough(self):
        return True

    def calm(self):
        return next(self.verdicts)


def numbered():
    """A piece of work whose seconds are its number."""
    count = itertools.count()
    return lambda: next(count)


def test_a_disturbed_round_is_timed_again():
    judge = Judge([True, False, True, True])
    samples = timing.interleave([numbered(), numbered()], 'reported', 3, budget=60, warm_up=0, watch=judge)
    assert samples == [[0, 2, 3], [0, 2, 3]]
    assert (judge.repeated, judge.disturbed) == (1, 0)


def test_repeating_ends_and_says_so():
    judge = Judge([False] * 6)
    samples = timing.interleave([numbered()], 'reported', 3, budget=60, warm_up=0, watch=judge)
    assert samples == [[3, 4, 5]]
    assert (judge.repeated, judge.disturbed) == (3, 3)


@pytest.mark.parametrize(('own', 'calm'), [(1.95, True), (1.5, False)])
def test_processor_time_of_others_disturbs(monkeypatch, own, calm):
    """In a second of two processors, all processes used two; 5 % of the processors may be others'."""
    clocks = {name: itertools.chain([0.0], itertools.repeat(value)) for name, value in (('all', 2.0), ('own', own))}
    monkeypatch.setattr(disturbance, 'machine_seconds', lambda: next(clocks['all']))
    monkeypatch.setattr(disturbance, 'own_seconds', lambda: next(clocks['own']))
    monkeypatch.setattr(disturbance.time, 'perf_counter', itertools.chain([0.0], itertools.repeat(1.0)).__next__)
    monkeypatch.setattr(disturbance.os, 'cpu_count', lambda: 2)
    watch = disturbance.Watch()
    assert watch.calm() is calm


def test_processor_time_of_children_is_ones_own():
    before, machine = disturbance.own_seconds(), disturbance.machine_seconds()
    command = 'import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()'
    child = subprocess.Popen([sys.executable, '-c', command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert disturbance.own_seconds() - before >= 0.4  # it is still running
    child.communicate(b'\n')
    assert disturbance.own_seconds() - before >= 0.4  # it has ended
    assert disturbance.machine_seconds() - machine >= 0.4


def test_disturbance_is_in_the_result(monkeypatch):
    monkeypatch.setattr(disturbance.Watch, 'calm', lambda watch: False)
    comparison = Comparison('suite', 'case', 'work', '1', '-', [Side('one', lambda: lambda: None)], counted=False)
    result = measure(comparison, Settings(repeats=3, budget=0.1), None)
    assert result['repeated'] == result['disturbed'] == 3
    assert result['note'] == (
        '3 rounds were repeated, because other processes used the processors; '
        'DISTURBED: other processes used the processors in 3 of the rounds'
    )


def test_a_sparse_matrix_counts_what_it_holds():
    matrix = torch.eye(100).to_sparse_csr()
    dense = torch.randn(100, 4)
    moved = floor.count(lambda: torch.sparse.sampled_addmm(matrix, dense, dense.t(), beta=0))['bytes']
    assert moved < 100 * 100 * 4


def test_public_and_own_adapter_are_compared_off_the_borders_of_cells(tmp_path, monkeypatch):
    """Fresh offsets are integers; a place on a border has two gradients, so rounding decides which one is shown."""
    from benchmarks import public
    from benchmarks.models import adapter, random_offsets

    def public_adapter(settings, weights):
        with torch.no_grad():
            for name, weight in weights.items():
                if name.endswith('level_embed'):
                    weight += 1e-7  # rounding of another kind
        model = adapter(settings)
        model.load_state_dict(weights)
        return model

    monkeypatch.setattr(public, 'public_adapter', public_adapter)
    settings = Settings(arch='mini', sizes=(64,), batch=1, checkouts={'vit-adapter': str(tmp_path)})
    found = [one for one in comparisons('adapter', settings) if 'public' in one.case]
    note = found[0].note()
    assert re.fullmatch(r'outputs \de-\d\d, gradients \de-0[4-9] apart, with random sampling offsets', note), note
    model = adapter(settings)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_offsets(model)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if '.sampling_offsets.' in name}
