"""Layer-wise learning rates through MMEngine's own builder, on a segmentor, a detector and a classifier."""

import re

import pytest
from config_helpers import find, load
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmlape.errors import ConfigError

RATE, LR = 0.5, 0.1
WRAPPER = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=LR, weight_decay=0.05),
    constructor='mmlape.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(layer_decay_rate=RATE, custom_keys=dict(pe_norm=dict(decay_mult=0.0))),
)
ARCH = dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=96)
ADAPTER = dict(type='mmlape.ViTAdapter', arch=ARCH, img_size=64, conv_inplane=8, pe_joining='lape')


def rates(model: nn.Module) -> dict[str, tuple[float, float]]:
    """(learning rate as a share of the full one, weight decay) of every parameter."""
    groups = build_optim_wrapper(model, WRAPPER).optimizer.param_groups
    by_id = {id(p): (group['lr'] / LR, group['weight_decay']) for group in groups for p in group['params']}
    assert len(by_id) == sum(len(group['params']) for group in groups)
    return {name: by_id[id(p)] for name, p in model.named_parameters()}


def expected(name: str) -> float:
    """Written down from the paper's rule: 4 layers are depths 1 to 4, embeddings 0, all else 5."""
    layer = re.match(r'backbone\.blocks\.(\d+)\.', name)
    if layer:
        return RATE ** (4 - int(layer[1]))
    embedding = re.match(r'backbone\.(patch_embed\.|pos_embed|cls_token|dist_token)', name)
    return RATE**5 if embedding else 1.0


def segmentor(backbone: dict) -> nn.Module:
    cfg = load(find('upernet', 'tiny', 'lape')).model.to_dict()
    cfg.update(backbone=backbone, auxiliary_head=None)
    cfg['decode_head'].update(in_channels=[48] * 4, channels=8)
    init_default_scope('mmseg')
    return MODELS.build(cfg)


def detector(backbone: dict) -> nn.Module:
    cfg = Config(load(find('mask_rcnn', 'tiny', 'lape')).model.to_dict())
    cfg.backbone = backbone
    cfg.neck.in_channels = [48] * 4
    init_default_scope('mmdet')
    return MODELS.build(cfg)


def classifier(backbone: dict) -> nn.Module:
    init_default_scope('mmpretrain')
    head = dict(type='LinearClsHead', num_classes=5, in_channels=48)
    return MODELS.build(dict(type='ImageClassifier', backbone=backbone, head=head))


@pytest.mark.parametrize(
    ('build', 'backbone'),
    [
        (segmentor, ADAPTER),
        (detector, ADAPTER),
        (
            classifier,
            dict(type='mmlape.VisionTransformer', arch=ARCH, img_size=32, pe_joining='lape', patch_norm='dual'),
        ),
        (classifier, dict(type='mmlape.DistilledVisionTransformer', arch=ARCH, img_size=32)),
    ],
    ids=['segmentor', 'detector', 'classifier', 'distilled'],
)
def test_each_parameter_trains_at_its_layers_rate(build, backbone):
    found = rates(build(backbone))
    assert {name: rate for name, (rate, _) in found.items()} == pytest.approx({n: expected(n) for n in found})
    assert {expected(name) for name in found} == {1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125}
    for name, (rate, decay) in found.items():
        if '.pe_norm.' in name:
            assert rate == found[name.replace('pe_norm', 'norm1')][0] and decay == 0.0


def test_what_is_the_adapters_own_trains_at_the_full_rate():
    found = rates(segmentor(ADAPTER))
    own = [n for n in found if re.match(r'backbone\.(spm|interactions|level_embed|up|norm\d)', n)]
    assert len(own) > 100 and {found[name][0] for name in own + ['decode_head.conv_seg.weight']} == {1.0}
    assert found['backbone.blocks.0.gamma1'][0] == pytest.approx(RATE**4)


def test_a_backbone_that_knows_no_depths_is_named():
    init_default_scope('mmpretrain')
    model = nn.Module()
    model.backbone = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match='get_layer_depth.*Module has Linear'):
        build_optim_wrapper(model, WRAPPER)
