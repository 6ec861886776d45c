"""Recipes at work: the optimiser's groups, the learning rate of every iteration, a gradient for every parameter."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from config_helpers import (
    CONFIGS,
    FAMILIES,
    MINI,
    ROOT,
    build,
    build_without_data,
    dpn_arm,
    find,
    load,
    method_of,
    short,
)
from mmengine.config import Config
from mmengine.hooks import ParamSchedulerHook
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner
from timm.scheduler import CosineLRScheduler
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from mmlape.lab.config.config_file import load_config

# the optimiser's groups


def no_decay_names(model: nn.Module) -> set[str]:
    """What a recipe may not decay: all of a norm, every bias, and the embeddings of positions and levels."""
    norms = {
        f'{prefix}.{name}' if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, (nn.LayerNorm, _BatchNorm)) or re.search(r'norm\d?$', prefix)
        for name, _ in module.named_parameters(recurse=False)
    }
    embeddings = ('pos_embed', 'level_embed', 'relative_position_bias_table')
    rest = {
        name
        for name, _ in model.named_parameters()
        if name.endswith('bias') or re.fullmatch(r'.*?({})\d*'.format('|'.join(embeddings)), name)
    }
    return norms | rest


def options(model: nn.Module, wrapper_cfg: dict, key: str = 'weight_decay') -> dict[str, float]:
    """An option of the optimiser for every parameter."""
    optimizer = build_optim_wrapper(model, wrapper_cfg).optimizer
    names = {id(p): name for name, p in model.named_parameters()}
    found = {names[id(p)]: group[key] for group in optimizer.param_groups for p in group['params']}
    assert set(found) == set(names.values())
    return found


@pytest.mark.parametrize('family', ['mask_rcnn', 'upernet'])
def test_norms_biases_and_embeddings_are_not_decayed(family):
    cfg = dpn_arm(family, 'tiny')
    model = build_without_data(cfg)
    decay = options(model, cfg.optim_wrapper)
    assert {name for name, value in decay.items() if value == 0} == no_decay_names(model)
    assert set(decay.values()) == {0, 0.05}
    for name in (
        'pos_embed', 'level_embed', 'blocks.3.pe_norm.weight', 'patch_embed.norm0.weight', 'norm1.weight',
        'spm.stem.1.weight', 'patch_embed.norm1.bias', 'interactions.0.injector.query_norm.weight',
    ):  # fmt: skip
        assert decay[f'backbone.{name}'] == 0
    for name in ('blocks.3.gamma1', 'interactions.0.injector.gamma', 'blocks.3.attn.qkv.weight', 'spm.stem.0.weight'):
        assert decay[f'backbone.{name}'] == 0.05


@pytest.mark.parametrize('family', FAMILIES + ('',))
def test_recipes_train_as_with_mmengines_own_constructor(family):
    """But for the decay of the PE, which MMEngine's does not know."""
    cfg = load(next(path for path in CONFIGS if method_of(path) == family and 'deit-tiny' in path.stem))
    model, ours = build_without_data(cfg), cfg.optim_wrapper
    theirs = {key: value for key, value in ours.items() if key != 'constructor'}
    assert ours.constructor == 'mmlape.ParamwiseOptimWrapperConstructor'
    for key in ('lr', 'weight_decay'):
        found, expected = options(model, ours, key), options(model, theirs, key)
        if key == 'weight_decay':
            expected['backbone.pos_embed'] = 0
        assert found == expected


def test_official_upernet_has_the_public_constructors_groups():
    """No decay for one-dimensional parameters; embeddings are layer 0, layer k trains at 0.95**(13 - k)."""
    cfg = load_config('mmlape::studies/ade20k-values.yml:upernet-tiny-official')
    model = build_without_data(cfg)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    groups = {id(p): group for group in optimizer.param_groups for p in group['params']}
    for name, parameter in model.named_parameters():
        found = re.match(r'backbone\.blocks\.(\d+)\.', name)
        first = name == 'backbone.pos_embed' or name.startswith('backbone.patch_embed')
        layer = int(found[1]) + 1 if found else 0 if first else 13
        group, accident = groups[id(parameter)], name in ('backbone.pos_embed', 'backbone.level_embed')
        assert group['lr'] == pytest.approx(12e-5 * 0.95 ** (13 - layer)), name
        assert group['weight_decay'] == (0 if parameter.ndim == 1 or accident else 0.01), name


# schedules, as the runner builds them and its hook steps them


class OneWeight(BaseModel):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return inputs


def learning_rates(cfg: Config, work_dir: Path, iters_per_epoch: int) -> list[float]:
    """The learning rate of every iteration of a run."""
    loader = DataLoader([torch.zeros(1)] * iters_per_epoch)
    runner = Runner(
        OneWeight(),
        str(work_dir),
        train_dataloader=loader,
        train_cfg=cfg.train_cfg,
        optim_wrapper=dict(type='OptimWrapper', optimizer=cfg.optim_wrapper.optimizer),
        param_scheduler=cfg.param_scheduler,
        experiment_name=work_dir.name,
        log_level='ERROR',
    )
    runner._train_loop = runner.build_train_loop(cfg.train_cfg)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    runner.param_schedulers = runner.build_param_scheduler(cfg.param_scheduler)
    runner.optim_wrapper.optimizer.step()  # torch warns of schedulers that step before their optimiser
    hook, rates = ParamSchedulerHook(), []
    for i in range(runner.max_iters):
        rates.append(runner.optim_wrapper.get_lr()['lr'][0])
        hook.after_train_iter(runner, i)
        if cfg.train_cfg.get('max_epochs') and (i + 1) % iters_per_epoch == 0:
            hook.after_train_epoch(runner)
    return rates


def poly(power: float, end: float, warmup: int = 0) -> Callable:
    """MMEngine's decay of a rate of 1 until the last of 160,000 iterations, after a linear warm-up from 1e-6."""

    def rate(i: int) -> float:
        if i < warmup:
            return 1e-6 + (1 - 1e-6) * i / (warmup - 1)
        return (1 - end) * (1 - (i - warmup) / (159_999 - warmup)) ** power + end

    return rate


def steps_3x(i: int) -> float:
    return 1e-3 + 0.999 * i / 499 if i < 500 else 0.1 ** ((i >= 27 * 600) + (i >= 33 * 600))


def upgraded(i: int) -> float:
    """2,000 iterations of warm-up, then a cosine by epochs that would end at a hundredth."""
    return 1e-3 if i == 0 else 0.01 + 0.99 * (1 + np.cos(np.pi * (i // 2500) / 25)) / 2


LINEAR = next(path for path in CONFIGS if path.stem.startswith('linear_vit-'))


@pytest.mark.parametrize(
    ('name', 'each', 'lr', 'rate', 'at'),
    [
        (find('mask_rcnn', 'tiny'), 600, 1e-4, steps_3x, (0, 250, 499, 16_199, 16_200, 19_799, 19_800, 21_599)),
        ('vit-adapter-coco.yml:upgraded-25e', 2500, 1e-4, upgraded, (0, 2500, 4999, 30_000, 60_000, 62_499)),
        (find('segmenter', 'tiny'), 2500, 1e-3, poly(0.9, 0.01), (0, 1, 80_000, 159_000, 159_999)),
        ('ade20k-values.yml:segmenter-tiny-lape-mmseg', 2500, 1e-3, poly(0.9, 0.1), (0, 80_000, 159_999)),
        (find('upernet', 'tiny'), 2500, 2e-5, poly(1.0, 0.0, 1500), (0, 750, 1499, 80_750, 159_999)),
        (LINEAR, 1263, 3e-5, lambda i: (1 - i / 161_663) ** 0.9, (0, 1, 80_000, 161_663)),
    ],
    ids=['3x', 'upgraded', 'segmenter', 'mmseg', 'upernet', 'linear'],
)
def test_rates_follow_the_formula(name, each, lr, rate, at, tmp_path):
    """At its first and last iteration, and where a part of it begins or ends."""
    cfg = load(name) if isinstance(name, Path) else load_config(f'mmlape::studies/{name}')
    rates = learning_rates(cfg, tmp_path, each)
    assert len(rates) == at[-1] + 1
    assert [rates[i] for i in at] == pytest.approx([lr * rate(i) for i in at], rel=1e-4, abs=1e-12)


DEIT_RATES = dict(lr=1e-3, warmup_t=5, warmup_lr_init=1e-6)
T2T_RATES = dict(lr=1e-3, warmup_t=10, warmup_lr_init=1e-6, cooldown=10)
COMPACT_RATES = dict(lr=5.5e-4, warmup_t=10, warmup_lr_init=1e-5, cooldown=10)


@pytest.mark.parametrize(
    ('path', 'rates'),
    [
        ('deit/deit-tiny-lape_4xb256-300e_in1k', DEIT_RATES),
        ('deit/deit-base-distilled_4xb256-300e_in1k', DEIT_RATES),
        ('deit/deit-small-irpe-product-k_4xb256-300e_in1k', DEIT_RATES),
        ('ceit/ceit-small_4xb256-300e_in1k', DEIT_RATES),
        ('t2t_vit/t2t-vit-7_4xb256-310e_in1k', T2T_RATES),
        ('compact/cct-7-3x1-lape_1xb128-310e_cifar10', COMPACT_RATES),
        ('compact/vit-lite-7-4_1xb128-310e_cifar100', dict(COMPACT_RATES, lr=6e-4, warmup_lr_init=1e-6)),
        ('deit/deit-tiny_1xb128-300e_cifar10', dict(DEIT_RATES, lr=5.5e-4, warmup_t=10)),
        ('swin/swin-small-lape_4xb128-300e_in1k', dict(
            lr=5e-4, warmup_t=20, warmup_lr_init=5e-7, lr_min=5e-6, warmup_prefix=True, t_in_epochs=False
        )),
    ],
    ids=lambda value: value.rpartition('/')[2] if isinstance(value, str) else '',
)  # fmt: skip
def test_rates_are_timms(path, rates, tmp_path):
    """Those of its cosine in every epoch, with the arguments that the public code gives it; Swin's in every step."""
    cfg, each, epochs = load(ROOT / 'configs' / f'{path}.py'), 4, 300
    options = dict(rates)
    cooldown, lr = options.pop('cooldown', 0), options.pop('lr')
    by_step = not options.get('t_in_epochs', True)
    if by_step:
        epochs, options['warmup_t'] = each * epochs, each * options['warmup_t']
    length = epochs - options['warmup_t'] * options.get('warmup_prefix', False)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    timms = CosineLRScheduler(optimizer, t_initial=length, **{'lr_min': 1e-5, **options})
    wanted = [timms._get_lr(t)[0] for t in range(epochs + cooldown)]
    found = np.array(learning_rates(cfg, tmp_path, each))
    assert np.abs(found - np.repeat(wanted, 1 if by_step else each)).max() < 1e-12


# gradients


def segmentation_batch(side: int, num_classes: int) -> dict:
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    samples = [
        SegDataSample(
            gt_sem_seg=PixelData(data=torch.randint(num_classes, (1, side, side))),
            metainfo=dict(img_shape=(side, side), ori_shape=(side, side)),
        )
        for _ in range(2)
    ]
    return dict(inputs=[torch.randint(256, (3, side, side), dtype=torch.uint8) for _ in samples], data_samples=samples)


def detection_batch(side: int, num_classes: int) -> dict:
    from mmdet.testing import demo_mm_inputs

    return demo_mm_inputs(2, [(3, side, side)] * 2, num_items=[8, 8], num_classes=num_classes, with_mask=True)


def classification_batch(side: int, num_classes: int) -> dict:
    from mmpretrain.structures import DataSample

    samples = [DataSample().set_gt_label(torch.randint(num_classes, (1,))) for _ in range(4)]
    return dict(inputs=torch.randint(256, (4, 3, side, side), dtype=torch.uint8), data_samples=samples)


def batch_for(model: nn.Module, side: int) -> dict:
    """A batch of the task and the classes of a model's head."""
    if hasattr(model, 'decode_head'):
        return segmentation_batch(side, model.decode_head.num_classes)
    if hasattr(model, 'panoptic_head'):
        return detection_batch(side, model.panoptic_head.num_things_classes)
    if hasattr(model, 'roi_head'):
        head = model.roi_head.bbox_head
        return detection_batch(side, (head[0] if isinstance(head, nn.ModuleList) else head).num_classes)
    if hasattr(model, 'bbox_head'):
        return detection_batch(side, model.bbox_head.num_classes)
    return classification_batch(side, model.head.num_classes)


VARIANTS = [find(family, 'tiny', v) for family in FAMILIES for v in ('', '-lape')]
DUAL = {'model.backbone.patch_norm': 'dual'}
FEW = [(find('segmenter', 'tiny', '-lape'), DUAL)]
FEW += [(path, {}) for path in MINI if 'vtab' not in path.stem]
REST = [(path, changes) for path in VARIANTS + MINI for changes in ({}, DUAL) if (path, changes) not in FEW]
REST = [(path, changes) for path, changes in REST if path in VARIANTS or not changes]


@pytest.mark.parametrize(
    ('path', 'changes'),
    FEW + [pytest.param(*case, marks=pytest.mark.release) for case in REST],
    ids=lambda value: short(value) if isinstance(value, Path) else '-dpn' * bool(value),
)
def test_one_step_reaches_every_parameter(path, changes):
    """No parameter is left without a gradient, nor with zeros only once the adapter's zero weights are none."""
    cfg, side = load(path).copy(), 64
    family = method_of(path)
    changes = {**changes, 'model.backbone.drop_path_rate': 0.0}
    if cfg.model.get('decode_head'):
        changes['model.data_preprocessor.size'] = (side, side)
    if family == 'mask_rcnn':  # fewer boxes, for speed
        changes |= {'model.train_cfg.rpn_proposal.max_per_img': 100, 'model.train_cfg.rcnn.sampler.num': 64}
    if family == 'plain_detr':  # the recipe's largest proposals are larger than the image
        changes['model.bbox_head.proposal_size'] = 4.0
    if family == 'cascade_mask_rcnn':  # the recipe's border of 0 leaves no anchor of the upper maps in small images
        changes['model.train_cfg.rpn.allowed_border'] = -1
    cfg.merge_from_dict(changes)
    model = revert_sync_batchnorm(build(cfg)).train()
    for name, parameter in model.named_parameters():
        zero = 'injector.gamma', 'sampling_offsets.weight', 'attention_weights.weight', 'layers.2.weight'
        if name.endswith(zero):
            nn.init.normal_(parameter, std=0.1)
    data = model.data_preprocessor(batch_for(model, side), training=True)
    loss, _ = model.parse_losses(model(**data, mode='loss'))
    assert torch.isfinite(loss)
    loss.backward()
    trained = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name for name, _ in model.named_parameters()} - set(trained)
    assert all(name.startswith('backbone.') and family == 'pmt' for name in frozen)
    assert [name for name, grad in trained.items() if grad is None] == []
    assert [name for name, grad in trained.items() if not grad.any()] == []
