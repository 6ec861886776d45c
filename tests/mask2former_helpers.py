"""A small Mask2Former."""

import copy

import torch
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope
from model_helpers import randomise

from mmlape.projects import Mask2FormerHead

DIMS, CLASSES = 16, 3
ATTENTION = dict(embed_dims=DIMS, num_heads=2, num_levels=3, num_points=4, dropout=0.0, batch_first=True)
CROSS = dict(embed_dims=DIMS, num_heads=2, attn_drop=0.0, proj_drop=0.0, batch_first=True)
RELU = dict(type='ReLU', inplace=True)
FFN_CFG = dict(embed_dims=DIMS, feedforward_channels=24, num_fcs=2, ffn_drop=0.0, act_cfg=RELU)
DECODER = dict(
    in_channels=[6, 7, 8, 9],
    strides=[4, 8, 16, 32],
    feat_channels=DIMS,
    out_channels=DIMS,
    norm_cfg=dict(type='GN', num_groups=4),
    encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg=ATTENTION, ffn_cfg=FFN_CFG)),
    positional_encoding=dict(num_feats=DIMS // 2, normalize=True),
)
HEAD = dict(
    in_channels=[6, 7, 8, 9],
    strides=[4, 8, 16, 32],
    feat_channels=DIMS,
    out_channels=DIMS,
    num_classes=CLASSES,
    num_queries=5,
    pixel_decoder={
        key: value for key, value in DECODER.items() if key in ('norm_cfg', 'encoder', 'positional_encoding')
    },
    positional_encoding=dict(num_feats=DIMS // 2, normalize=True),
    transformer_decoder=dict(
        num_layers=2,
        return_intermediate=True,
        layer_cfg=dict(self_attn_cfg=CROSS, cross_attn_cfg=CROSS, ffn_cfg=FFN_CFG),
    ),
    loss_cls=dict(type='mmdet.CrossEntropyLoss', class_weight=[1.0] * CLASSES + [0.1]),
    loss_mask=dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True),
    loss_dice=dict(type='mmdet.DiceLoss', use_sigmoid=True, activate=True, naive_dice=True, eps=1.0),
)


def config(cfg: dict) -> ConfigDict:
    return ConfigDict(copy.deepcopy(cfg))


def head(kind=Mask2FormerHead, **kwargs):
    init_default_scope('mmseg')
    decoder = 'mmlape.' if kind is Mask2FormerHead else 'mmdet.'
    cfg = config(dict(HEAD, **kwargs))
    cfg.pixel_decoder.type = f'{decoder}MSDeformAttnPixelDecoder'
    torch.manual_seed(1)
    model = kind(**cfg).eval()
    randomise(model)
    return model
