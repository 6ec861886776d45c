"""Values that MMEngine or torch refuse while they build: one line with the key, before a step is trained."""

import pytest
import tiny

from mmlape.errors import ConfigError
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.runner import Runner
from mmlape.lab.engine.trainer import train


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('building')
    return tiny.write_config(folder, tiny.write_data(folder / 'data', train=2, val=1))


@pytest.mark.parametrize(
    ('option', 'message'),
    [
        ('train_dataloader.batch_size=0', 'train_dataloader.batch_size=0 is no whole number'),
        ('train_dataloader.batch_size=abc', "train_dataloader.batch_size='abc' is no whole number"),
        ('optim_wrapper.accumulative_counts=1.5', 'optim_wrapper.accumulative_counts=1.5 is no whole number'),
        ('optim_wrapper.optimizer.lr=abc', 'optim_wrapper.* cannot be built: TypeError'),
        ('model.backbone.patch_size=0', r'model \(mmlape.VisionTransformer\) cannot be built: ZeroDivisionError'),
        ('val_dataloader.batch_size=abc', 'val_dataloader.* cannot be built: ValueError: batch_size should be'),
        ('default_hooks.logger.interval=abc', r'default_hooks \(LoggerHook\) cannot be built: TypeError: interval'),
        ('param_scheduler.0.end=abc', 'param_scheduler.* cannot be built: TypeError'),
    ],
)
def test_the_key_is_named_in_one_line(option, message, config, tmp_path):
    with pytest.raises(ConfigError, match=rf'^{config}: {message}[^\n]*$'):
        train(load_config(config, [option]), tmp_path / 'run', seed=0, batch='allow-batch-mismatch')


def test_data_that_fill_no_batch(config, tmp_path):
    options = ['train_dataloader.batch_size=3', 'train_dataloader.drop_last=True']
    cfg = load_config(config, options)
    cfg.train_dataloader.sampler = dict(type='DefaultSampler', shuffle=True)
    with pytest.raises(ConfigError, match='its 2 images do not fill one of train_dataloader.batch_size=3'):
        train(cfg, tmp_path / 'run', seed=0, batch='allow-batch-mismatch')


def test_what_only_workers_need_is_left_out_without_any(config):
    loader = load_config(config).val_dataloader
    loader.update(num_workers=0, persistent_workers=True, prefetch_factor=2)
    assert not Runner.build_dataloader(loader).persistent_workers
    loader.update(num_workers=1)
    assert Runner.build_dataloader(loader).persistent_workers, 'with one they stay'
