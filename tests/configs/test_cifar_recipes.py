"""The CIFAR recipe of Compact Transformers: rates, decay, augmentation."""

import copy
from collections import Counter

import mmcv
import numpy as np
import pytest
import torch
from config_helpers import ROOT, build, load
from mmengine.dataset import Compose
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from test_recipes import learning_rates, options
from torchvision import transforms


def recipe(data: str):
    return load(ROOT / 'configs' / 'compact' / f'vit-lite-7-4-lape_1xb128-310e_{data}.py')


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


@pytest.mark.parametrize('path', ['compact/cvt-7-4_1xb128-310e_cifar10', 't2t_vit/t2t-vit-7-lape_4xb256-310e_in1k'])
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


# T2T-ViT-7 on CIFAR-100, as in MPVG's Table 2

FINE_TUNED = ROOT / 'configs/t2t_vit/t2t-vit-7_1xb128-60e-ft224_cifar100.py'


def test_fine_tuning_has_the_images_of_torchvisions_transforms():
    """But for the normalisation, which the public code has for CIFAR-10 and the model's preprocessor does."""
    cfg = load(FINE_TUNED)
    init_default_scope(cfg.default_scope)
    image = np.random.RandomState(0).randint(256, size=(32, 32, 3), dtype=np.uint8)
    theirs = transforms.Compose([transforms.Resize(224), transforms.PILToTensor()])(Image.fromarray(image))
    test = Compose(cfg.test_dataloader.dataset.pipeline)(dict(img=image, gt_label=3))
    assert torch.equal(test['inputs'], theirs)
    resize, crop, *_ = cfg.train_dataloader.dataset.pipeline
    assert (crop.crop_size, crop.padding) == (224, 28)
    padded = torch.nn.functional.pad(theirs, [28] * 4)
    train = Compose([resize, crop, dict(type='PackInputs')])(dict(img=image, gt_label=3))
    windows = (padded[:, row : row + 224, column : column + 224] for row in range(57) for column in range(57))
    assert any(torch.equal(window, train['inputs']) for window in windows)
    pre = MODELS.build(dict(cfg.model.data_preprocessor, type='ClsDataPreprocessor'))
    normalise = transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    inputs = pre(dict(inputs=[theirs]))['inputs'][0]
    assert torch.allclose(inputs, normalise(theirs / 255), atol=1e-5)


def test_fine_tuning_has_the_rates_of_torchs_cosine(tmp_path):
    """Of head and backbone, whose cosine ends at the same rate; everything is decayed."""
    cfg = load(FINE_TUNED)
    cfg.model.backbone.init_cfg = None
    model = build(cfg)
    rate, decay = (options(model, cfg.optim_wrapper, key) for key in ('lr', 'weight_decay'))
    assert {name.split('.')[0]: value for name, value in rate.items()} == pytest.approx(dict(backbone=5e-4, head=5e-2))
    assert set(decay.values()) == {5e-4}
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=5e-2)
    cosine, wanted = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60, eta_min=2e-4), []
    for _ in range(60):
        wanted.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        cosine.step()
    assert np.allclose(learning_rates(cfg, tmp_path, 2)[::2], wanted, rtol=1e-9)
