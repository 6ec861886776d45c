"""What ViT-Adapter's public configs resolve to, beside the arms and configs that quote its figures."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from config_helpers import ROOT, build_without_data, load
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from test_recipes import options

from mmlape.lab.config.config_file import apply_options, resolve_path
from mmlape.lab.studies import read_study


@cache
def arms(name: str) -> dict[str, Config]:
    """The config of each arm of ``studies/vit-adapter-NAME.yml``; its bases are read once."""
    configs = {}
    for arm in read_study(ROOT / 'studies' / f'vit-adapter-{name}.yml').arms:
        configs[arm.name] = load(resolve_path(arm.base))
        apply_options(configs[arm.name], dict(arm.overrides))
    return configs


def matching(name: str, pattern: str) -> set[str]:
    """The arms of a study whose names match, with LaPE and without."""
    return {arm for arm in arms(name) if re.fullmatch(f'({pattern})(-lape)?', arm)}


def test_htc_gives_every_object_a_box_in_each_stage():
    """The public assigners are without the key, so that it is mmdetection 2's default; Cascade's have False."""
    for name, cfg in arms('coco').items():
        if cfg.model.type in ('HybridTaskCascade', 'CascadeRCNN'):
            assigners = [stage.assigner for stage in cfg.model.train_cfg.rcnn]
            assert [one.match_low_quality for one in assigners] == [cfg.model.type == 'HybridTaskCascade'] * 3, name
            assert [one.pos_iou_thr for one in assigners] == [one.min_pos_iou for one in assigners] == [0.5, 0.6, 0.7]
            assert cfg.model.train_cfg.rpn.assigner.match_low_quality


def first_key_rule(name: str, keys: dict[str, dict]) -> tuple[float, float]:
    """The factors of rate and decay by mmcv 1: those of one key, the longest, of equal ones the alphabet's first."""
    key = next((key for key in sorted(sorted(keys), key=len, reverse=True) if key in name), None)
    return keys.get(key, {}).get('lr_mult', 1.0), keys.get(key, {}).get('decay_mult', 1.0)


def test_the_heads_of_augreg_base_train_as_by_the_public_keys():
    """Biases at the plain rate, weights at ten times; scales of the heads' batch norms decay."""
    free = dict(decay_mult=0.0)
    keys = dict(level_embed=free, pos_embed=free, norm=free, bias=free, head=dict(lr_mult=10.0))
    for name in matching('segmentation', 'upernet-augreg-base'):
        cfg = arms('segmentation')[name]
        model = build_without_data(cfg)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
        found = {names[id(p)]: (group['lr'], group['weight_decay']) for group in groups for p in group['params']}
        for parameter, (rate, decay) in found.items():
            rates, decays = first_key_rule(parameter, keys)
            assert rate == pytest.approx(2e-5 * rates), parameter
            if '.spm.' not in parameter:  # whose norms, without 'norm' in their names, decay by accident there
                assert decay == 0.01 * decays, parameter
        assert found['decode_head.lateral_convs.0.bn.weight'] == (pytest.approx(2e-4), 0.01)
        assert found['decode_head.conv_seg.bias'] == (2e-5, 0.0)


@pytest.mark.parametrize(
    ('ours', 'theirs', 'warmup'),
    [
        (
            'mask_rcnn/mask-rcnn_swin-tiny-rpe_4xb4-3x_coco',
            'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py',
            (500, 1000),
        ),
        (
            'upernet/upernet_swin-tiny-rpe_4xb4-160k_ade20k',
            'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
            (1500, 1500),
        ),
    ],
)
def test_swin_is_trained_as_by_the_toolboxes(ours, theirs, warmup):
    """Images, rates and decay of every parameter, drop path; Swin's own code warms up for 500 steps in detection."""
    package, _, file = theirs.partition('::')
    cfg = load(ROOT / 'configs' / f'{ours}.py')
    public = Config.fromfile(Path(import_module(package).__file__).parent / '.mim' / 'configs' / file)
    steps = [
        [dict(step, backend_args=None) for step in one.train_dataloader.dataset.pipeline] for one in (cfg, public)
    ]
    assert steps[0] == steps[1]
    model = build_without_data(cfg)
    for key in ('lr', 'weight_decay'):
        assert options(model, cfg.optim_wrapper, key) == options(model, public.optim_wrapper, key)
    assert cfg.model.backbone.drop_path_rate == public.model.backbone.drop_path_rate
    (first, then), (their_first, their_then) = cfg.param_scheduler, public.param_scheduler
    assert (first.end, their_first.end) == warmup and first.start_factor == their_first.start_factor
    same = ('type', 'milestones', 'gamma', 'power', 'eta_min', 'by_epoch')
    assert [then.get(key) for key in same] == [their_then.get(key) for key in same]
    assert cfg.model.test_cfg == public.model.test_cfg
