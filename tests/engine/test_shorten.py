"""Counts along a run are scaled in order on every config: by `mmlape train --shorten`, and by `--accumulate`."""

import copy

import pytest
import tiny
import torch
from config_helpers import CONFIGS, load
from each import each
from mmengine.config import Config
from mmengine.optim import ExponentialLR, LinearLR, MultiStepLR, PolyLR

from mmlape.cli import main
from mmlape.files import read_json
from mmlape.lab.config.schedule import WarmupCosineLR, check_schedule, check_units, shorten, stretch
from mmlape.lab.recipe import Recipe

SHARES = (1, 0.5, 0.1, 0.01, 1e-6)


def points(cfg):
    """What happens when, in iterations or epochs of the run, by name."""
    loop = cfg.train_cfg
    found = {key: loop[key] for key in ('max_iters', 'max_epochs', 'val_interval') if loop.get(key)}
    for part in Recipe.of(cfg).schedulers:
        key, one = part.key, part.cfg
        begin = one.get('begin', 0)
        found[f'{key}.begin'] = begin
        if one.get('end') is not None:
            found[f'{key}.end'] = one['end']
        if one.get('T_max') is not None:
            found[f'{key}.T_max'] = begin + one['T_max']
        for number, milestone in enumerate(one.get('milestones') or ()):
            found[f'{key}.milestones.{number}'] = begin + milestone
    found['checkpoint'] = cfg.default_hooks.checkpoint.interval
    found['logger'] = cfg.default_hooks.logger.interval
    for hook in cfg.get('custom_hooks') or ():
        for number, change in enumerate(hook.get('schedule') or ()):
            found[f'switch.{number}'] = change['action_epoch']
    return found


def test_every_schedule_is_scaled_in_its_order():
    seen = set()
    for path in each(CONFIGS):
        cfg = load(path)
        if not cfg.get('train_cfg'):
            continue  # a config of tests only
        parts = {key: cfg.get(key) for key in ('train_cfg', 'param_scheduler', 'default_hooks', 'custom_hooks')}
        if str(parts) in seen:
            continue
        seen.add(str(parts))
        check_units(Recipe.of(cfg))
        before = points(cfg)
        for share in SHARES:
            scaled = copy.deepcopy(cfg)
            shorten(Recipe.of(scaled), share)
            check_schedule(Recipe.of(scaled))
            if share == 1:
                assert scaled._cfg_dict == cfg._cfg_dict
                continue
            length = scaled.train_cfg.get('max_iters') or scaled.train_cfg.get('max_epochs')
            assert type(length) is int and length >= 1
            if len(scaled.param_scheduler) < len(cfg.param_scheduler):  # only those that would begin at the end
                assert length <= 3 or share < 0.01
                assert scaled.param_scheduler[0].get('begin', 0) == 0
                continue
            after = points(scaled)
            assert after.keys() == before.keys()
            for key, value in after.items():
                old = before[key]
                assert value == old if old < 1 else value == pytest.approx(max(1, old * share), abs=0.5 + 1e-9), key
            for one in before:
                for other in before:
                    assert before[one] > before[other] or after[one] <= after[other], (one, other)
            for old, new in zip(cfg.param_scheduler, scaled.param_scheduler):
                others = {'begin', 'end', 'T_max', 'milestones', 'warmup', 'gamma'}
                assert {k: v for k, v in old.items() if k not in others} == {
                    k: v for k, v in new.items() if k not in others
                }
                if old.get('warmup'):
                    assert 0 <= new['warmup'] < (new.get('end') or length)


BUILD = {cls.__name__: cls for cls in (ExponentialLR, LinearLR, MultiStepLR, PolyLR, WarmupCosineLR)}


def rates(parts, length):
    """The learning rate of each iteration, by MMEngine's schedulers."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    built = [
        BUILD[part['type'].removeprefix('mmlape.')](optimizer, **{k: v for k, v in part.items() if k != 'type'})
        for part in parts
    ]
    found = []
    for _ in range(length):
        found.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for one in built:
            one.step()
    return torch.tensor(found)


@pytest.mark.parametrize(
    'parts',
    [
        [
            dict(type='LinearLR', by_epoch=False, start_factor=0.1, begin=0, end=100),
            dict(type='MultiStepLR', by_epoch=False, milestones=[500, 800], begin=100, gamma=0.1),
        ],
        [dict(type='PolyLR', by_epoch=False, begin=200, end=1000, eta_min=0.0, power=1.0)],
        [dict(type='mmlape.WarmupCosineLR', by_epoch=False, warmup=200, warmup_start=0.0, eta_min=0.0, T_max=1000)],
        [dict(type='ExponentialLR', by_epoch=False, gamma=0.998, begin=90)],
    ],
    ids=['steps', 'poly', 'cosine', 'exponential'],
)
def test_the_rates_have_the_same_course(parts):
    loop = dict(type='IterBasedTrainLoop', max_iters=1000, val_interval=10, val_begin=30, dynamic_intervals=[(50, 5)])
    saving = dict(checkpoint=dict(by_epoch=False, interval=20))
    of_epochs = dict(type='MultiStepLR', by_epoch=True, milestones=[6])
    long = Config(dict(train_cfg=loop, param_scheduler=copy.deepcopy([*parts, of_epochs]), default_hooks=saving))
    stretch(Recipe.of(long), 2)
    assert long.param_scheduler.pop() == of_epochs
    assert long.default_hooks.checkpoint.interval == 40
    assert long.train_cfg == dict(loop, max_iters=2000, val_interval=20, val_begin=60, dynamic_intervals=[(100, 10)])
    cfg = Config(dict(train_cfg=dict(max_iters=1000), param_scheduler=parts))
    full = rates(cfg.param_scheduler, 1000)
    assert (rates(long.param_scheduler, 2000)[::2] - full).abs().max() < 0.02
    shorten(Recipe.of(cfg), 0.1)
    scaled = rates(cfg.param_scheduler, cfg.train_cfg.max_iters)
    assert len(scaled) == 100 and cfg.train_cfg.val_interval == 100
    away = (scaled - full[::10]).abs()
    assert away.max() < 0.1, away.argmax()  # a step of the short warm-up


def test_the_option_reaches_the_run(tmp_path, capsys):
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'))
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), '--seed', '0', '--shorten', '0.34']) == 0
    record = read_json(tmp_path / 'run' / 'run.json')
    assert (record['iter'], record['max_iters']) == (2, 2) and [record['last']['step']] == [2]
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'no'), '--shorten', '2']) == 1
    assert '--shorten 2.0: give a share' in capsys.readouterr().err and not (tmp_path / 'no').exists()
