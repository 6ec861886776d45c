"""The CIFAR recipe of Compact Transformers: rates, decay, augmentation, and when mixup ends."""

from types import SimpleNamespace

import numpy as np
import pytest
from config_helpers import ROOT, build, load
from mmengine.dataset import Compose
from mmengine.registry import HOOKS
from test_recipes import options


def recipe(data: str):
    return load(ROOT / 'configs' / 'cifar' / f'vit-lite-7-4-lape_1xb128-310e_{data}.py')


@pytest.mark.parametrize('data', ['cifar10', 'cifar100'])
def test_decay(data):
    """The PE is decayed."""
    cfg = recipe(data)
    model = build(cfg)
    decay = options(model, cfg.optim_wrapper)
    parameters = dict(model.named_parameters())
    assert {name for name, value in decay.items() if value == 0} == {n for n, p in parameters.items() if p.ndim == 1}
    assert set(decay.values()) == {0, 0.06} and decay['backbone.positional_emb'] == 0.06
    assert 'clip_grad' not in cfg.optim_wrapper
    assert model.head.loss_module.label_smooth_val == 0.1


def test_mixup_ends_after_175_epochs_of_cifar10_only():
    assert 'custom_hooks' not in recipe('cifar100')
    cfg = recipe('cifar10')
    hook, model = HOOKS.build(dict(cfg.custom_hooks[0], _scope_='mmpretrain')), build(cfg)
    runner = SimpleNamespace(model=model, logger=SimpleNamespace(info=print), epoch=174, _resume=False)
    hook.before_train_epoch(runner)
    assert [type(one).__name__ for one in model.data_preprocessor.batch_augments.augments] == ['Mixup', 'CutMix']
    runner.epoch = 175
    hook.before_train_epoch(runner)
    assert model.data_preprocessor.batch_augments is None


@pytest.mark.parametrize('data', ['cifar10', 'cifar100'])
def test_images_are_normalised_and_augmented(data):
    cfg = recipe(data)
    pipeline = cfg.train_dataloader.dataset.pipeline
    assert ('RandomErasing' in [step.type for step in pipeline]) == (data == 'cifar100')
    assert {crop[0].interpolation for crop in pipeline[0].transforms} == {'bilinear', 'bicubic'}
    assert all(crop[0].crop_ratio_range == (0.8, 1.0) for crop in pipeline[0].transforms)
    sample = Compose(pipeline)(dict(img=np.full((32, 32, 3), 7, np.uint8), gt_label=3))
    assert sample['inputs'].shape == (3, 32, 32)
    mean, std = cfg.model.data_preprocessor['mean'], cfg.model.data_preprocessor['std']
    published = {
        'cifar10': ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        'cifar100': ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    }[data]
    assert np.allclose(np.divide(mean, 255), published[0]) and np.allclose(np.divide(std, 255), published[1])
