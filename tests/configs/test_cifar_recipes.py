"""The CIFAR recipe of Compact Transformers: rates, decay, augmentation, and when mixup ends."""

import copy
from collections import Counter
from types import SimpleNamespace

import mmcv
import numpy as np
import pytest
from config_helpers import ROOT, build, load
from mmengine.dataset import Compose
from mmengine.registry import HOOKS, init_default_scope
from test_recipes import options


def recipe(data: str):
    return load(ROOT / 'configs' / 'classification' / 'cifar' / f'vit-lite-7-4-lape_1xb128-310e_{data}.py')


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
    init_default_scope(cfg.default_scope)
    pipeline = cfg.train_dataloader.dataset.pipeline
    assert all(crop[0].crop_ratio_range == (0.8, 1.0) for crop in pipeline[0].transforms)
    sample = Compose(pipeline)(dict(img=np.full((32, 32, 3), 7, np.uint8), gt_label=3))
    assert sample['inputs'].shape == (3, 32, 32)
    mean, std = cfg.model.data_preprocessor['mean'], cfg.model.data_preprocessor['std']
    published = {
        'cifar10': ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        'cifar100': ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    }[data]
    assert np.allclose(np.divide(mean, 255), published[0]) and np.allclose(np.divide(std, 255), published[1])


@pytest.mark.parametrize('data', ['cifar10', 'cifar100'])
@pytest.mark.parametrize('arch', ['vit-lite-7-4', 'cvt-7-4', 'cct-7-3x1'])
def test_erasing_is_that_of_the_public_files(arch, data):
    """0.25 in both files of datasets, and for CCT-7/3x1 on CIFAR-100; 0 for it on CIFAR-10."""
    for joining in ('', '-lape'):
        cfg = load(ROOT / 'configs' / 'classification' / 'cifar' / f'{arch}{joining}_1xb128-310e_{data}.py')
        erasing = [step for step in cfg.train_dataloader.dataset.pipeline if step.type == 'RandomErasing']
        assert [step.erase_prob for step in erasing] == [0.25] * ((arch, data) != ('cct-7-3x1', 'cifar10'))
        pre = cfg.model.data_preprocessor
        assert all((step.fill_color, step.fill_std, step.mode) == (pre.mean, pre.std, 'rand') for step in erasing)


RANDOM = [f'classification/cifar/cvt-7-4_1xb128-310e_{data}' for data in ('cifar10', 'cifar100')]


@pytest.mark.parametrize('path', [*RANDOM, 'classification/imagenet/t2t-vit-7-lape_4xb256-310e_in1k'])
def test_interpolation_is_random(path, monkeypatch):
    """In the crop and in each of the two operations of RandAugment on its own, half of the time each."""
    cfg = load(ROOT / 'configs' / f'{path}.py')
    init_default_scope(cfg.default_scope)
    crop, operations = [], []
    resize, rotate = mmcv.imresize, mmcv.imrotate
    monkeypatch.setattr(mmcv, 'imresize', lambda *args, **kw: crop.append(kw['interpolation']) or resize(*args, **kw))
    monkeypatch.setattr(
        mmcv, 'imrotate', lambda *args, **kw: operations[-1].append(kw['interpolation']) or rotate(*args, **kw)
    )
    steps = copy.deepcopy(cfg.train_dataloader.dataset.pipeline)
    rotations = [dict(type='Rotate', magnitude_range=(10, 30), prob=1.0)]
    for step in steps:
        for branch in step.get('transforms', []):
            branch[0].update(policies=rotations) if branch[0].type == 'RandAugment' else None
    pipeline, np_state = Compose([step for step in steps if step.type != 'LoadImageFromFile']), np.random.get_state()
    np.random.seed(0)
    for _ in range(200):
        operations.append([])
        pipeline(dict(img=np.zeros((40, 36, 3), np.uint8), gt_label=3))
    np.random.set_state(np_state)
    pairs = Counter(map(tuple, operations))
    assert sum(pairs.values()) == 200 and all(len(pair) == 2 for pair in pairs)
    assert len(pairs) == 4 and all(count > 30 for count in pairs.values())
    assert set(crop) == {'bilinear', 'bicubic'} and all(count > 70 for count in Counter(crop).values())
