"""Pretraining: distillation, and the way from a checkpoint into a running model."""

import itertools
import json
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkpoint_helpers import save
from mmengine.model import BaseModel
from mmengine.registry import init_default_scope
from PIL import Image
from tiny import ROOT, write_config, write_data

from mmlape.checkpoint import read_checkpoint
from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.runs.schema import read_evaluations
from mmlape.lab.training.trainer import train
from mmlape.models import VisionTransformer
from mmlape.registry import MODELS

PRETRAIN = ROOT / 'configs' / 'deit'
ARCH = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64)


def distilled(teacher=None, **kwargs):
    from mmlape.models.classifiers.distillation import DistilledImageClassifier

    init_default_scope('mmpretrain')
    vit = dict(arch=ARCH, img_size=32, patch_size=8)
    teacher = teacher or dict(
        type='ImageClassifier',
        backbone=dict(type='mmlape.VisionTransformer', **vit),
        head=dict(type='LinearClsHead', num_classes=5, in_channels=32),
    )
    return DistilledImageClassifier(
        backbone=dict(type='mmlape.DistilledVisionTransformer', pe_joining='lape', **vit),
        head=dict(type='mmlape.DistilledClsHead', num_classes=5, in_channels=32, init_cfg=None),
        teacher=teacher,
        **kwargs,
    )


def test_distillation_is_half_label_and_half_the_teachers_choice():
    from mmpretrain.structures import DataSample

    model = distilled().eval()
    images, labels = torch.randn(4, 3, 32, 32), torch.tensor([0, 4, 2, 2])
    losses = model.loss(images, [DataSample().set_gt_label(int(label)) for label in labels])
    cls_token, dist_token = model.backbone(images)[0]
    chosen = model.teacher(images).argmax(1)
    by_label = F.cross_entropy(model.head.layers.head(cls_token), labels)
    by_teacher = F.cross_entropy(model.head.layers.head_dist(dist_token), chosen)
    torch.testing.assert_close(losses['loss_cls'], by_label / 2)
    torch.testing.assert_close(losses['loss_dist'], by_teacher / 2)
    scores = (model.head.layers.head(cls_token) + model.head.layers.head_dist(dist_token)) / 2
    torch.testing.assert_close(model(images), scores)


def test_the_teacher_is_neither_trained_nor_saved(tmp_path):
    model = distilled().train()
    assert not [name for name in model.state_dict() if 'teacher' in name]
    assert not any(part.training for part in model.teacher.modules())
    assert not any(p.requires_grad for p in model.teacher.parameters())
    ids = {id(p) for p in model.parameters()}
    assert not any(id(p) in ids for p in model.teacher.parameters())
    other = distilled().teacher.state_dict()
    model = distilled(teacher_checkpoint=save(tmp_path / 'teacher.pth', other, 'state_dict'))
    model.init_weights()
    assert all(torch.equal(value, other[name]) for name, value in model.teacher.state_dict().items())


def test_a_checkpoint_is_in_the_model_once_training_runs(tmp_path, capfd):
    """One iteration with learning rate 0 through the real tool leaves the checkpoint's values, to the bit."""
    source = VisionTransformer(ARCH, 32, 8, pe_joining='lape')
    record = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
    path = save(tmp_path / 'lape.pth', source.state_dict(), meta=dict(mmlape=record))
    extra = (
        f"model['backbone']['init_cfg'] = dict(type='Pretrained', checkpoint={path!r})\n"
        "optim_wrapper['optimizer'].update(lr=0.0)\n"
        "train_cfg = dict(type='IterBasedTrainLoop', max_iters=1, val_interval=1)\n"
    )
    config = write_config(tmp_path, write_data(tmp_path / 'data'), extra)
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'out')]) == 0
    printed = ''.join(capfd.readouterr())
    assert re.search(r'loaded (\d+) of \1\b', printed), printed
    assert 'lape.pth: its images were normalised with mean=[123.675, 116.28, 103.53]' in printed
    trained = torch.load(next((tmp_path / 'out').glob('iter_1.pth')), weights_only=False)['state_dict']
    expected = source.state_dict()
    compared = [name for name in trained if name.startswith('backbone.')]
    assert len(compared) == len(expected)
    for name in compared:
        assert torch.equal(trained[name], expected[name.removeprefix('backbone.')]), name


def test_imagenets_recipe_runs_at_384_from_a_checkpoint_of_224(tmp_path, capfd):
    """RandAugment, erasing, mixup, CutMix and repeated augmentation at work; the PE grows from 14 x 14 to 24 x 24."""
    random = np.random.default_rng(0)
    for split, kind in itertools.product(('train', 'val'), 'abcde'):
        (tmp_path / 'data' / split / kind).mkdir(parents=True)
        for number in range(2):
            picture = Image.fromarray(random.integers(0, 256, (40, 50, 3), dtype=np.uint8))
            picture.save(tmp_path / 'data' / split / kind / f'{number}.png')
    path = save(tmp_path / 'lape.pth', VisionTransformer(ARCH, 224, pe_joining='lape').state_dict())
    arch = str(dict(ARCH, _delete_=True)).replace(' ', '')
    plain_loaders = ('num_workers=0', 'persistent_workers=False')
    options = (
        f'data_root={tmp_path / "data"}/', f'model.backbone.arch={arch}', 'model.head.in_channels=32',
        f'model.backbone.init_cfg.checkpoint={path}', 'train_cfg.max_epochs=1', 'train_dataloader.batch_size=10',
        *(f'{split}_dataloader.{word}' for split in ('train', 'val') for word in plain_loaders),
    )  # fmt: skip
    words = ['train', str(PRETRAIN / 'deit-base-lape_4xb64-30e-ft384_in1k.py'), '--work-dir', str(tmp_path / 'out')]
    assert main([*words, '--seed', '0', '--allow-batch-mismatch', '--cfg-options', *options]) == 0
    assert 'resized pos_embed: 14x14 -> 24x24' in ''.join(capfd.readouterr())
    stored = read_checkpoint(tmp_path / 'out' / 'epoch_1.pth')
    assert stored['state_dict']['backbone.pos_embed'].shape == (1, 577, 32)
    assert stored['meta']['iter'] == 1, 'an epoch has ten pictures, though each may come three times'


@MODELS.register_module()
class CornerClassifier(BaseModel):
    """Says 1 where the corner of an image is white, else 0."""

    def __init__(self, data_preprocessor):
        super().__init__(data_preprocessor)
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, data_samples=None, mode='tensor'):
        if mode == 'loss':
            return dict(loss=self.weight.sum())
        white = (inputs[:, :, 0, 0].mean(1) > 0.5).long()
        return [
            sample.set_pred_label(one).set_pred_score(F.one_hot(one, 5).float())
            for sample, one in zip(data_samples, white)
        ]


def test_imagenet_is_evaluated_at_both_crop_ratios(tmp_path):
    """A white frame of 12 pixels is in the image at crop ratio 1.0, and outside it at 0.875."""
    framed = np.full((256, 256, 3), 255, np.uint8)
    framed[12:-12, 12:-12] = 0
    for split, kind in itertools.product(('train', 'val'), 'abcde'):  # one image of a, which is class 0; two of b
        folder = tmp_path / 'data' / split / kind
        folder.mkdir(parents=True)
        for number in range(2 if kind == 'b' else 1):
            Image.fromarray(framed).save(folder / f'{number}.png')
    plain = dict(num_workers=0, persistent_workers=False)
    cfg = load_config(PRETRAIN / 'deit-tiny-lape_4xb256-300e_in1k.py', dict(data_root=f'{tmp_path / "data"}/'))
    cfg.merge_from_dict(dict(
        model=dict(
            _delete_=True, type='mmlape.CornerClassifier',
            data_preprocessor=dict(type='ClsDataPreprocessor', mean=[0] * 3, std=[255] * 3),
        ),
        train_cfg=dict(max_epochs=2), train_dataloader=dict(batch_size=2, **plain), val_dataloader=plain,
        test_dataloader=plain, param_scheduler=[], auto_scale_lr=dict(base_batch_size=2),
    ))  # fmt: skip
    accuracies = {'accuracy/top1': pytest.approx(100 / 6), 'crop_1.0/accuracy/top1': pytest.approx(100 / 3)}
    train(cfg, tmp_path / 'out', seed=0)
    first, last = (evaluation.metrics for evaluation in read_evaluations(tmp_path / 'out'))
    assert 'crop_1.0/accuracy/top1' not in first and first['accuracy/top1'] == accuracies['accuracy/top1']
    assert {key: last[key] for key in accuracies} == accuracies
    found = evaluate(cfg, tmp_path / 'out' / 'epoch_2.pth', tmp_path / 'test')
    assert {key: found['metrics'][key] for key in accuracies} == accuracies
    assert json.loads((tmp_path / 'test' / 'metrics.json').read_text())['metrics'] == found['metrics']
    cfg.val_dataloader.dataset.pipeline.pop(1)
    with pytest.raises(ConfigError, match='crop_1.0.*val_dataloader has no transform ResizeEdge'):
        train(cfg, tmp_path / 'other', seed=0)
