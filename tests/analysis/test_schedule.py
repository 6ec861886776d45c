"""Learning rate and weight decay over time: those of a run of MMEngine's with the same schedulers."""

import numpy as np
import pytest
import torch
from config_helpers import ROOT
from hypothesis import given
from hypothesis import strategies as st
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from properties import examples
from torch.utils.data import DataLoader

from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.lab.analysis import schedule
from mmlape.lab.analysis.schedule import EPOCH_LENGTH, compute_schedule, schedule_table
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.schedule import shorten
from mmlape.tables import rows_of

LENGTH = 7  # iterations of an epoch
WARMUP = dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=10)
ITERATIONS = [WARMUP, dict(type='PolyLR', eta_min=0.01, power=0.9, by_epoch=False, begin=10)]
EPOCHS = [
    WARMUP,
    dict(type='MultiStepLR', milestones=[2, 4], gamma=0.5),
    dict(type='CosineAnnealingParamScheduler', param_name='weight_decay', eta_min=0.2, T_max=5, end=5,
         convert_to_iter_based=True),
]  # fmt: skip
WHOLE_EPOCHS = [dict(type='mmlape.WarmupCosineLR', warmup=2, warmup_start=0.001, eta_min=0.1)]


class Line(BaseModel):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, mode):
        return dict(loss=(self.weight * inputs).sum())


class Recorder(Hook):
    def __init__(self):
        self.values = []

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        (group,) = runner.optim_wrapper.param_groups
        self.values.append((group['lr'], group['weight_decay']))


def config_of(schedulers, loop):
    optimizer = dict(type='SGD', lr=1.0, weight_decay=0.5)
    return Config(
        dict(train_cfg=loop, param_scheduler=schedulers, optim_wrapper=dict(type='OptimWrapper', optimizer=optimizer))
    )


@pytest.mark.parametrize(
    ('schedulers', 'loop'),
    [
        (ITERATIONS, dict(type='IterBasedTrainLoop', max_iters=40)),
        (EPOCHS, dict(type='EpochBasedTrainLoop', max_epochs=6)),
        (WHOLE_EPOCHS, dict(type='EpochBasedTrainLoop', max_epochs=6)),
    ],
    ids=['iterations', 'mixed', 'epochs'],
)
def test_every_step_has_the_values_of_a_run(tmp_path, monkeypatch, schedulers, loop):
    cfg = config_of(schedulers, loop)
    recorder = Recorder()
    data = DataLoader([dict(inputs=torch.ones(1))] * LENGTH)
    Runner(
        model=Line(),
        work_dir=str(tmp_path),
        train_dataloader=data,
        train_cfg=cfg.train_cfg,
        optim_wrapper=cfg.optim_wrapper,
        param_scheduler=cfg.param_scheduler,
        custom_hooks=[recorder],
        default_hooks=dict(checkpoint=None, logger=None),
        experiment_name=tmp_path.name,
        log_level='ERROR',
    ).train()
    monkeypatch.setattr(schedule, 'epoch_length', lambda cfg: (LENGTH, False))
    found = compute_schedule(cfg)
    expected = np.array(recorder.values).T
    if found.unit == 'epoch':
        expected = expected[:, ::LENGTH]
    np.testing.assert_allclose((found.lr, found.weight_decay), expected, rtol=1e-12)
    assert len(set(found.lr)) > 2


@examples(max_examples=60)
@given(images=st.integers(1, 90), batch=st.integers(1, 9), processes=st.integers(1, 4), drop_last=st.booleans())
def test_an_epoch_is_as_long_as_the_data_loader_of_a_process(images, batch, processes, drop_last):
    sampler = DefaultSampler(range(images), shuffle=False)
    sampler.num_samples = -(-images // processes)  # as with so many processes
    loader = DataLoader(range(images), batch, sampler=sampler, drop_last=drop_last)
    cfg = Config(
        dict(
            default_scope='mmengine',
            auto_scale_lr=dict(base_batch_size=batch * processes),
            train_dataloader=dict(batch_size=batch, drop_last=drop_last, dataset=dict(type='Numbered', count=images)),
        )
    )
    assert schedule.epoch_length(cfg) == (max(1, len(loader)), False)


@DATASETS.register_module()
class Numbered:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


def test_a_schedule_of_a_config_is_printed_and_drawn(tmp_path, capsys):
    """Without data an epoch is assumed, and that is said; the shortened one has the same values at its shares."""
    config = ROOT / 'configs' / 'mask_rcnn' / 'mask-rcnn_deit-small-adapter_4xb2-3x_coco.py'
    assert main(['print-config', str(config), '--shorten', '0.1', '--schedule', str(tmp_path / 'a' / 's.svg')]) == 0
    printed = capsys.readouterr().out
    assert '3,599' in printed and f'an epoch is taken as {EPOCH_LENGTH} iterations' in printed
    assert (tmp_path / 'a' / 's.svg').read_text().startswith('<?xml')
    cfg = load_config(str(config))
    complete = compute_schedule(cfg)
    shorten(cfg, 1 / 3)
    third = compute_schedule(cfg)
    assert len(complete.lr) == 3 * len(third.lr) == 36 * EPOCH_LENGTH
    np.testing.assert_allclose(third.lr[200:], complete.lr[600::3], rtol=1e-9)
    rows = rows_of(schedule_table(complete))
    assert rows[0][2] == '1e-07' and rows[-1][:3] == ('35,999', '36.00', '1e-06')


def test_what_has_no_schedule_is_refused(tmp_path, capsys):
    loop = dict(type='IterBasedTrainLoop', max_iters=4)
    with pytest.raises(ConfigError, match='has no lr'):
        compute_schedule(Config(dict(config_of([], loop), optim_wrapper=dict(optimizer=dict(type='SGD')))))
    config = tmp_path / 'a.py'
    config.write_text('x = 1')
    assert main(['print-config', str(config), '--schedule', str(tmp_path / 's.txt')]) == 1
    assert 'ends with .png, .svg or .pdf' in capsys.readouterr().err
    assert main(['print-config', str(config), '--schedule', str(tmp_path / 's.png')]) == 1
    assert 'optim_wrapper' in capsys.readouterr().err
    assert main(['print-config', str(config), '--from', '--shorten', '0.5']) == 1
    assert 'give no --shorten' in capsys.readouterr().err
