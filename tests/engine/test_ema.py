"""The average of the weights that the recipes of T2T-ViT and CeiT keep: in evaluations and checkpoints."""

import shutil
from types import SimpleNamespace

import pytest
import tiny
import torch
from mmengine.optim import build_optim_wrapper

from mmlape.checkpoint import read_checkpoint
from mmlape.checkpoint.converting import publish
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.training.hooks.checkpoint import checkpoint_bytes
from mmlape.lab.training.trainer import train

MOMENTUM = 0.2
CHANGES = f"""
model['backbone'] = dict(
    type='mmlape.CeiT', img_size=32, out_type='featmap', pe_joining='lape',
    arch=dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64, stem_channels=8),
)
custom_hooks = [dict(type='EMAHook', momentum={MOMENTUM}, update_buffers=True)]
train_cfg.update(max_iters=6, val_interval=2)
default_hooks['checkpoint'].update(interval=1, max_keep_ckpts=-1)
optim_wrapper['optimizer']['lr'] = 0.02
"""


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A configuration and the work dir of its run."""
    folder = tmp_path_factory.mktemp('ema')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data', train=4, val=2), CHANGES)
    train(load_config(config), folder / 'out', seed=3)
    return config, folder / 'out'


@pytest.mark.parametrize(
    ('optimizer', 'copies'),
    [(dict(type='SGD', lr=0.1), 1), (dict(type='SGD', lr=0.1, momentum=0.9), 2), (dict(type='AdamW', lr=0.1), 3)],
    ids=str,
)
def test_a_checkpoint_has_room_for_weights_their_average_and_the_optimizers_state(optimizer, copies):
    model = torch.nn.Linear(9, 10)
    wrapper = build_optim_wrapper(model, dict(optimizer=optimizer))
    runner = SimpleNamespace(bare_model=model, optim_wrapper=wrapper, hooks=[])
    assert checkpoint_bytes(runner) == 100 * 4 * copies
    runner.hooks = [SimpleNamespace(ema_model=model)]
    assert checkpoint_bytes(runner) == 100 * 4 * (copies + 1)


def test_the_average_is_what_is_evaluated(trained, tmp_path):
    config, out = trained
    recorded = {one['step']: one['metrics'] for one in tiny.evaluations(out)}
    assert list(recorded) == [2, 4, 6]

    def metrics(file):
        return evaluate(load_config(str(config)), str(file), tmp_path / file.stem)['metrics']

    found = metrics(out / 'iter_6.pth')
    assert {name: found[name] for name in recorded[6]} == pytest.approx(recorded[6])
    plain = publish(out / 'iter_6.pth', tmp_path / 'plain.safetensors')
    assert metrics(plain) != pytest.approx(recorded[6])


@pytest.mark.release
def test_a_kept_average_leaves_the_run_as_it_is(tmp_path):
    """Metrics, best checkpoint and weights are those without it; a resumed run has the same average."""
    data = tiny.write_data(tmp_path / 'data')
    kept = tiny.write_config(tmp_path, data, CHANGES.replace("'EMAHook'", "'mmlape.KeptEMAHook'"), 'kept')
    without = tiny.write_config(tmp_path, data, CHANGES + 'custom_hooks.clear()\n', 'without')
    runs = {path.stem: tmp_path / path.stem for path in (kept, without)}
    for path in (kept, without):
        train(load_config(str(path)), runs[path.stem], seed=3)
    recorded = [[one['metrics'] for one in tiny.evaluations(folder)] for folder in runs.values()]
    assert recorded[0] == recorded[1] and len(recorded[0]) == 3
    assert len({next(folder.glob('best_*')).name for folder in runs.values()}) == 1
    average = None
    for iteration in range(1, 7):
        content, plain = (read_checkpoint(folder / f'iter_{iteration}.pth') for folder in runs.values())
        plain = plain['state_dict']
        assert all(torch.equal(content['state_dict'][name], value) for name, value in plain.items())
        plain = {name: value for name, value in plain.items() if value.is_floating_point()}
        average = average or plain
        average = {name: (1 - MOMENTUM) * average[name] + MOMENTUM * value for name, value in plain.items()}
        for name, value in average.items():
            torch.testing.assert_close(content['state_dict_ema'][f'module.{name}'], value, atol=1e-6, rtol=1e-5)
    shutil.copy(runs['kept'] / 'iter_2.pth', tmp_path)
    train(load_config(str(kept)), tmp_path / 'resumed', seed=3, resume=str(tmp_path / 'iter_2.pth'))
    resumed = read_checkpoint(tmp_path / 'resumed' / 'iter_6.pth')['state_dict_ema']
    assert all(torch.equal(resumed[name], value) for name, value in content['state_dict_ema'].items())
    averaged = publish(runs['kept'] / 'iter_6.pth', tmp_path / 'averaged.safetensors', 'ema')
    assert evaluate(load_config(str(kept)), str(averaged), tmp_path)['metrics'] != pytest.approx(recorded[0][-1])
