"""Configs of foundation models: short variants that differ in what their names say, with the weights' own images."""

from math import prod

import pytest
import timm
import torch
from config_helpers import FOUNDATION, load, parts
from each import each
from mmengine.config import Config
from tiny import ROOT, run

from mmlape.backbones import build_backbone
from mmlape.checkpoint import read_checkpoint
from mmlape.errors import CheckpointError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.training.optim import build_model, parameter_groups
from mmlape.models import TimmViT

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


CONFIG = ROOT / 'configs' / 'upernet' / 'upernet_timm-mini-adapter_1xb4-200i_mini-ade.py'
OPTIONS = (
    'train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'param_scheduler.0.end=1', 'param_scheduler.1.begin=1',
    'default_hooks.checkpoint.interval=1', 'default_hooks.checkpoint.max_keep_ckpts=2',
    'train_dataloader.num_workers=0', 'auto_scale_lr.base_batch_size=2',
    'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False', 'model.backbone.conv_inplane=4', 'train_dataloader.batch_size=2',
)  # fmt: skip
FROZEN = ('model.backbone.vit.frozen=True', 'model.backbone.mode=read-only')


def vit_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: value for key, value in weights.items() if key.startswith('backbone.vit.')}


def test_the_backbone_of_a_trained_model_is_that_of_its_file(tmp_path):
    cfg = load_config(CONFIG, ['model.backbone.conv_inplane=4'])
    stored = build_model(cfg).state_dict()
    torch.save(dict(state_dict=stored), tmp_path / 'iter_2.pth')
    backbone = build_backbone(cfg, str(tmp_path / 'iter_2.pth'))
    assert vit_weights(stored) and all(
        torch.equal(backbone.state_dict()[key.removeprefix('backbone.')], value)
        for key, value in vit_weights(stored).items()
    )
    with pytest.raises(CheckpointError, match='lacks .* tensors of the backbone'):
        torch.save(backbone.vit.state_dict(), tmp_path / 'vit.pth')
        build_backbone(cfg, str(tmp_path / 'vit.pth'))


@pytest.mark.release
def test_a_frozen_vit_in_two_processes_is_left_alone(pristine, tmp_path):
    """Its weights are those that it began with; the adapter's are not."""
    theirs = TimmViT('vit_tiny_patch16_224', img_size=128, model_args=dict(embed_dim=64, depth=4, num_heads=4,
                     mlp_ratio=2, reg_tokens=2))  # fmt: skip
    torch.save({key.removeprefix('vit.'): value for key, value in theirs.state_dict().items()}, tmp_path / 'vit.pth')
    init = f'model.backbone.init_cfg={{"type":"Pretrained","checkpoint":"{tmp_path / "vit.pth"}"}}'
    options = (*FROZEN, init, 'auto_scale_lr.base_batch_size=4')
    words = ('2', '--work-dir', tmp_path / 'run', '--seed', '1', '--cfg-options', f'data_root={pristine}/ade/')
    run(ROOT / 'tools' / 'dist_train.sh', CONFIG, *words, *OPTIONS, *options, cwd=tmp_path)
    last = vit_weights(read_checkpoint(tmp_path / 'run' / 'iter_2.pth')['state_dict'])
    assert last and all(
        torch.equal(value, theirs.state_dict()[key.removeprefix('backbone.')]) for key, value in last.items()
    )
    weights = [read_checkpoint(tmp_path / 'run' / f'iter_{step}.pth') for step in (1, 2)]
    moved = 'backbone.interactions.0.extractor.attn.value_proj.weight'
    assert not torch.equal(*(one['state_dict'][moved] for one in weights))
    state = weights[-1]['optimizer']['state']
    frozen = len([key for key in last if not key.endswith('k_bias')])
    assert len(state) < len(weights[-1]['state_dict']) - frozen
