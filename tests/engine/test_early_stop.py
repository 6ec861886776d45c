"""A hook that ends training before its length: a finish with a reason, for every command."""

import json

import pytest
import tiny
from each import each
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

from mmlape.cli import main
from mmlape.lab.config.config_file import load_config
from mmlape.lab.runs.run import read_run
from mmlape.lab.training.trainer import train


@HOOKS.register_module()
class StopAt(Hook):
    """A user's own hook."""

    stop_reason = 'enough'

    def __init__(self, iteration: int, seed: int = 1) -> None:
        self.iteration, self.seed = iteration, seed

    def before_run(self, runner) -> None:
        assert runner.train_loop is not None  # as MMEngine's hook does

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        if runner.iter + 1 == self.iteration and runner.seed == self.seed:
            runner.train_loop.stop_training = True


NEVER_BETTER = "custom_hooks = [dict(type='EarlyStoppingHook', monitor='mIoU', min_delta=1000, patience={})]\n"
EARLY = 'train_cfg.update(max_iters=8, val_interval=2)\ndefault_hooks["checkpoint"]["interval"] = 2\n'
CASES = {
    'no improvement': (EARLY + NEVER_BETTER.format(2), 6, 8, 'EarlyStoppingHook', 'mIoU did not improve by min_delta'),
    'a threshold, at the first validation': (
        "custom_hooks = [dict(type='EarlyStoppingHook', monitor='mIoU', stopping_threshold=0.5)]",
        3, 6, 'EarlyStoppingHook', 'mIoU reached 0.5',
    ),
    "a user's own hook": ("custom_hooks = [dict(type='StopAt', iteration=4)]", 4, 6, 'StopAt', 'enough'),
    'a loop of epochs, stopped in the second': (
        tiny.EPOCHS + "custom_hooks = [dict(type='StopAt', iteration=5)]", 8, 12, 'StopAt', 'enough',
    ),
}  # fmt: skip


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp('stops') / 'data', train=8, val=2, side=40)


def test_a_stop_is_a_finish_with_its_reason(data, tmp_path, capfd):
    for name, (extra, done, length, hook, cause) in each(CASES.items()):
        config = tiny.write_config(tmp_path, data, extra)
        folder = tmp_path / f'{hook}{done}' / 'seed_1'
        record = train(load_config(config), folder, seed=1)
        assert (record.state, record.iter, record.max_iters) == ('finished', done, length), name
        reason = f'stopped by {hook} at {done} of {length}: {cause}'
        assert record.reason.startswith(reason)
        run = read_run(folder)
        assert run.counts and not run.partial and run.outcome == f'finished: {record.reason}'
    capfd.readouterr()
    assert main(['train', str(config), '--work-dir', str(folder), '--resume', '--seed', '1']) == 0
    assert f'a finished run ({reason}' in capfd.readouterr().out
    assert main(['status', str(folder.parent), '--json']) == 0
    assert json.loads(capfd.readouterr().out)[0]['reason'] == record.reason
    file = max(folder.glob('*.pth'))
    assert main(['test', str(config), str(file), '--work-dir', str(tmp_path / 'test')]) == 0
    assert main(['report', str(tmp_path / 'EarlyStoppingHook6')]) == 0
    assert 'seed 1 stopped by EarlyStoppingHook at 6 of 8' in ' '.join(capfd.readouterr().out.split())
