"""Recipes of Swin: the values of the public code and of LaPE's Table I, and arms that differ in their PE alone."""

import re

import pytest
from config_helpers import CONFIGS, build, load, method_of
from each import each
from mmengine.optim import build_optim_wrapper
from test_configs import flat

SWIN = [path for path in CONFIGS if 'swin-' in path.stem and '-irpe-' not in path.stem]
ARMS = {
    'rpe': ('rpe', 'default'),
    'default': ('learnable', 'default'),
    'lape': ('learnable', 'lape'),
    'lape-rpe': (['learnable', 'rpe'], 'lape'),
}


def arm_of(path) -> str:
    return re.search(r'swin-(?:tiny|small)-?([a-z-]*)_', path.stem)[1] or 'default'


def test_every_arm_is_there():
    found = [(method_of(path), arm_of(path)) for path in SWIN]
    for family, arms in (('', ARMS), ('mask_rcnn', list(ARMS)[:3]), ('upernet', list(ARMS)[:3])):
        assert sorted(arm for name, arm in found if name == family) == sorted([*arms] * 2)


def test_an_arm_differs_from_the_relative_bias_in_its_pe_alone():
    for path in each(SWIN):
        cfg, arm = load(path), arm_of(path)
        backbone = cfg.model.backbone
        assert (backbone.pe_type, backbone.get('pe_joining', 'default')) == ARMS[arm]
        reference = load(path.with_name(re.sub('(tiny|small).*?_', r'\1-rpe_', path.name)))
        changed = {re.sub(r'\.\d+$', '', key) for key, _ in flat(cfg) ^ flat(reference)}
        checkpoint = 'model.backbone.init_cfg.checkpoint'
        assert changed <= {'model.backbone.pe_type', 'model.backbone.pe_joining', checkpoint}
        if method_of(path):
            size = backbone.arch
            files = {'rpe': f'swin_{size}_patch4_window7_224.pth'}
            assert backbone.init_cfg.checkpoint == 'pretrained/' + files.get(arm, f'swin_{size}_{arm}.pth')
        drop_path = {'': 0.3 if 'small' in path.stem else 0.2, 'mask_rcnn': 0.2, 'upernet': 0.3}
        assert backbone.drop_path_rate == drop_path[method_of(path)]
        # Microsoft's classifier shrinks windows, mmdetection and mmsegmentation pad maps
        assert backbone.get('pad_small_map', False) == bool(method_of(path))


def first(family: str, arm: str):
    return next(path for path in SWIN if method_of(path) == family and '-tiny' in path.stem and arm_of(path) == arm)


def test_the_schedules_are_the_public_ones():
    cfg = load(first('', 'lape-rpe'))
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 5e-4, 0.05)
    assert cfg.optim_wrapper.clip_grad.max_norm == 5.0
    assert cfg.train_dataloader.sampler == dict(type='DefaultSampler', shuffle=True)
    assert [augment.type for augment in cfg.model.train_cfg.augments] == ['Mixup', 'CutMix']
    detector, segmentor = load(first('mask_rcnn', 'rpe')), load(first('upernet', 'rpe'))
    rates = [
        (cfg.optim_wrapper.optimizer.lr, cfg.optim_wrapper.optimizer.weight_decay) for cfg in (detector, segmentor)
    ]
    assert rates == [(1e-4, 0.05), (6e-5, 0.01)]
    assert [cfg.param_scheduler[0].end for cfg in (detector, segmentor)] == [500, 1500]
    steps = [step['type'] for step in detector.train_dataloader.dataset.pipeline]
    assert steps == ['LoadImageFromFile', 'LoadAnnotations', 'RandomFlip', 'RandomChoice', 'PackDetInputs']
    assert segmentor.model.test_cfg == dict(mode='whole') and segmentor.param_scheduler[1].power == 1.0


@pytest.mark.parametrize('family', ['', 'mask_rcnn', 'upernet'])
def test_tables_and_norms_are_not_decayed(family):
    cfg = load(first(family, 'lape-rpe' if not family else 'lape')).copy()
    cfg.model.backbone.update(init_cfg=None, arch=dict(embed_dims=12, depths=(1, 1, 1, 1), num_heads=(1,) * 4))
    cfg.model.backbone.pe_type = ['learnable', 'rpe']
    widths = [12, 24, 48, 96]
    if not family:
        cfg.model.head.in_channels = widths[-1]
    elif family == 'mask_rcnn':
        cfg.model.neck.in_channels = widths
    else:
        cfg.model.decode_head.in_channels, cfg.model.auxiliary_head.in_channels = widths, widths[2]
    model = build(cfg)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    plain = {id(parameter) for group in groups if not group['weight_decay'] for parameter in group['params']}
    free = {name for name, parameter in model.backbone.named_parameters() if id(parameter) in plain}
    parts = ('absolute_pos_embed', 'relative_position_bias_table', 'norm', *(['bias'] if not family else []))
    assert free == {name for name, _ in model.backbone.named_parameters() if any(part in name for part in parts)}
