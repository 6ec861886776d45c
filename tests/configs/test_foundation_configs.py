"""Configs of foundation models: short variants that differ in what their names say, with the weights' own images."""

from math import prod

import pytest
import timm
from config_helpers import FOUNDATION, load, parts
from each import each
from mmengine.config import Config

from mmlape.lab.training.optim import build_model, parameter_groups

FULL = [path for path in FOUNDATION if '_mini-' not in path.stem]


def vit_of(cfg: Config) -> dict:
    return cfg.model.backbone.get('vit', cfg.model.backbone)


def test_a_config():
    """Weights are those of the model's name, images are normalised as they want it, a variant is short."""
    for path in each(FULL):
        cfg, name = load(path), parts(path)
        vit, model = vit_of(cfg), name['arch'].partition('-')[0]
        assert model.removeprefix('augreg').removesuffix('02') in vit.model_name  # AugReg's is timm's plain name
        assert cfg.model.backbone.init_cfg.checkpoint == f'hf-hub:timm/{vit.model_name}'
        stored = timm.get_pretrained_cfg(vit.model_name)
        for key in ('mean', 'std'):
            assert cfg.model.data_preprocessor[key] == pytest.approx(
                [255 * value for value in getattr(stored, key)], abs=1e-3
            )
        read_only = bool(name['adapter']) or name['method'] == 'plain-detr'
        frozen = name['method'] == 'linear' or (model == 'dinov3' and read_only)
        assert vit.get('frozen', False) == frozen
        if name['adapter']:
            assert (cfg.model.backbone.get('mode') == 'read-only') == frozen
        text = path.read_text()
        assert 'not run by us' in text.splitlines()[0]


def small(cfg: Config) -> Config:
    vit_of(cfg).update(model_args=dict(embed_dim=64, depth=4, num_heads=4))
    for part in (cfg.model.decode_head, cfg.model.get('auxiliary_head', {})):
        part.update(in_channels=[64] * 4 if isinstance(part.get('in_channels'), list) else 64)
    return cfg


def test_a_frozen_model_trains_its_head_alone():
    cfg = small(Config.fromfile(next(path for path in FULL if 'linear_dinov3-small' in path.stem)))
    cfg.model.decode_head.update(channels=64)
    *trained, frozen = parameter_groups(cfg)
    assert frozen.lr is None and all(name.startswith('backbone.vit.') for name in frozen.names)
    assert {name for group in trained for name in group.names} == {
        'decode_head.conv_seg.weight', 'decode_head.conv_seg.bias'
    }  # fmt: skip


def test_a_trained_models_rates_fall_with_depth():
    """Vectors, the PE and prefix tokens have no decay; depth counts the ViT's layers."""
    cfg = small(Config.fromfile(next(path for path in FULL if 'upernet_dinov2-small' in path.stem)))
    cfg.model.backbone.update(deform_num_heads=4)
    model = build_model(cfg)
    for group in parameter_groups(cfg):
        for name in group.names:
            flat = prod(model.get_parameter(name).shape) == max(model.get_parameter(name).shape)
            token = name.endswith(('pos_embed', 'cls_token', 'reg_token', 'level_embed'))
            assert (group.weight_decay == 0) == (flat or token), name
            if '.vit.blocks.' in name:
                assert group.lr == pytest.approx(2e-5 * 0.9 ** (4 - int(name.split('.')[3])))
