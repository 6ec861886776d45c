"""Gradient norms by depth: against torch.autograd, through accumulation, clipping, loss scales and processes."""

import json
import sys

import forking_python
import pytest
import tiny
import torch
from gradient_norm_processes import Net, by_autograd, steps
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from synthetic import write_log
from torch import nn

from mmlape.cli import main
from mmlape.errors import DataError
from mmlape.lab.analysis.gradient_norms import read_norms
from mmlape.lab.training.hooks.gradient_norm import TAG, gradient_norms


def test_norms_are_those_of_autograd_before_clipping():
    model, images = Net().double(), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    expected = by_autograd(model, images)
    for clipped in ({}, dict(clip_grad=dict(max_norm=1e-3))):
        logged = steps(model, [images], **clipped)[1]
        assert list(logged) == ['patch_embed', 'position', 'blocks.0', 'blocks.1', 'backbone', 'heads', 'all']
        assert logged['all'] > 1e-2 and logged == pytest.approx(expected, rel=1e-12)


def test_accumulated_gradients_are_those_of_the_full_batch():
    model, images = Net().double(), torch.randn(8, 3, 32, 32, dtype=torch.float64)
    logged = steps(model, images.split(2), accumulative_counts=2, interval=3)
    assert list(logged) == [2, 4], 'only iterations that end in a step, the next after 1 and 3'
    for iteration, batch in ((2, images[:4]), (4, images[4:])):
        assert logged[iteration] == pytest.approx(by_autograd(model, batch), rel=1e-12)


@pytest.mark.parametrize('start, expected', [(0, [1, 3, 6]), (4, [6, 9])])
def test_interval_and_resume(start, expected):
    assert list(steps(Net(), [torch.randn(1, 3, 32, 32)] * 6, interval=3, start=start)) == expected


class Scaler:
    """Multiplies the loss as torch's scaler does on a GPU."""

    def __init__(self, scale):
        self.factor = scale

    def scale(self, loss):
        return loss * self.factor

    def get_scale(self):
        return self.factor

    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group['params']:
                parameter.grad = None if parameter.grad is None else parameter.grad / self.factor

    def step(self, optimizer):
        optimizer.step()

    def update(self, *args):
        pass


def test_loss_scale_is_taken_out(monkeypatch):
    model, images = Net().double(), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    expected = by_autograd(model, images)
    monkeypatch.setattr(AmpOptimWrapper, '__init__', _amp_init)
    for options in (dict(), dict(clip_grad=dict(max_norm=1e-3))):
        assert steps(model, [images], AmpOptimWrapper, **options)[1] == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(Scaler, 'scale', lambda self, loss: loss * float('inf'))
    assert steps(model, [images], AmpOptimWrapper) == {}, 'a step that overflowed is skipped, and not logged'


def _amp_init(self, optimizer, **options):
    """MMEngine's, on a machine without a GPU."""
    OptimWrapper.__init__(self, optimizer, **options)
    self.loss_scaler, self._scale_update_param = Scaler(2.0**12), None


def test_norms_of_half_precision_gradients_do_not_overflow():
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    parameter.grad = torch.full((4,), 2.0**14, dtype=torch.float16)
    assert gradient_norms({'heads': [parameter]})['all'] == 2.0**15


def test_two_processes():
    script = tiny.ROOT / 'tests' / 'gradient_norm_processes.py'
    launch = (sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', 2, script)
    python = forking_python.executable()  # the processes'
    assert 'all equal' in tiny.run(*launch, cwd=tiny.ROOT, CUDA_VISIBLE_DEVICES='', PYTHON_EXEC=python)


def rows(work_dir):
    lines = next(work_dir.glob('*/vis_data/scalars.json')).read_text().splitlines()
    return [row for row in map(json.loads, lines) if f'{TAG}all' in row]


def test_training_logs_and_the_plot_reads(tmp_path, capsys):
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data', train=4, val=1))
    for arm in ('lape', 'default'):
        words = ['train', str(config), '--work-dir', str(tmp_path / 'runs' / arm / 'seed_1'), '--seed', '1']
        assert main([*words, '--log-grad-norm', '2', '--cfg-options', f'model.backbone.pe_joining={arm}']) == 0
    logged = rows(tmp_path / 'runs' / 'lape' / 'seed_1')
    assert [row['step'] for row in logged] == [1, 2, 4, 6]
    assert all(row[f'{TAG}blocks.1'] > 0 and row[f'{TAG}patch_embed'] > 0 for row in logged)
    plot = ('plot-grad-norms', '--out', str(tmp_path / 'norms.png'))
    assert main([*plot, str(tmp_path / 'runs')]) == 0
    output = capsys.readouterr().out
    assert 'lape' in output and 'default' in output and 'blocks.1' in output
    assert (tmp_path / 'norms.png').stat().st_size > 10000
    assert main([*plot, str(tmp_path / 'data')]) == 1
    assert '--log-grad-norm' in capsys.readouterr().err


def logged_run(folder, values, parts=('patch_embed', 'blocks.0', 'all')):
    """A run's log with these norms, the same for every part, at iterations 1, 2, ..."""
    write_log(folder, [{'step': step, **{f'{TAG}{p}': v for p in parts}} for step, v in enumerate(values, 1)])


def test_arms_of_one_name_in_two_places_stay_apart(tmp_path):
    for place, values in (('ade', (1.0, 3.0)), ('coco', (100.0, 300.0))):
        for seed in (1, 2):
            logged_run(tmp_path / place / 'lape' / f'seed_{seed}', [seed * value for value in values])
    logged_run(tmp_path / 'ade' / 'default' / 'seed_1', [7.0])
    arms = {arm.name: arm for arm in read_norms([tmp_path / 'ade', tmp_path / 'coco'])}
    assert list(arms) == ['default', str(tmp_path / 'ade' / 'lape'), str(tmp_path / 'coco' / 'lape')]
    assert arms[str(tmp_path / 'ade' / 'lape')].by_depth(1000)[:, 0].tolist() == [2.0, 4.0]
    assert arms[str(tmp_path / 'coco' / 'lape')].by_depth(1)[:, 0].tolist() == [300.0, 600.0]


def test_a_resumed_runs_norms_are_those_of_all_its_parts(tmp_path):
    for name, norms in (('20260101_000000', {1: 8.0, 2: 2.0, 3: 9.0}), ('20260102_000000', {3: 4.0, 4: 6.0})):
        rows = [
            {'step': step, **{f'{TAG}{part}': norm for part in ('blocks.0', 'all')}} for step, norm in norms.items()
        ]
        write_log(tmp_path / 'lape' / 'seed_1', rows, name)
    (arm,) = read_norms([tmp_path])
    steps, norms = arm.over_time('blocks.0')
    assert (steps.tolist(), norms.tolist()) == ([1, 2, 3, 4], [[8.0, 2.0, 4.0, 6.0]])
    assert arm.by_depth(3).tolist() == [[4.0, 4.0]]


def test_runs_of_other_layers_are_no_arm(tmp_path):
    for deep, shallow in ((1, 2), (2, 1)):
        arm = tmp_path / f'arm_{deep}'
        logged_run(arm / f'seed_{deep}', [1.0], ('patch_embed', 'blocks.0', 'blocks.1', 'all'))
        logged_run(arm / f'seed_{shallow}', [1.0])
        with pytest.raises(DataError, match=f'{arm.name}: its runs.* have other parts'):
            read_norms([arm])
