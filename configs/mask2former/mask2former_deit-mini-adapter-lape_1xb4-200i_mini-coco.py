"""Mask2Former for instances with a small ViT-Adapter on the mini data, LaPE: for the tests, not for comparing methods.

mmlape train configs/mask2former/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-coco.py
"""

_base_ = [
    '../_base_/models/mask2former_coco_vit-adapter.py',
    '../_base_/models/mini_vit-adapter.py',
    '../_base_/datasets/mini_coco.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = _base_.embed_dims
width = 64
num_classes = len(_base_.classes)
attention = dict(embed_dims=width, num_heads=4)
ffn = dict(embed_dims=width, feedforward_channels=4 * width)
model = dict(
    backbone=dict(arch=dict(_delete_=True, **_base_.mini_arch), **_base_.mini_adapter),
    panoptic_head=dict(
        in_channels=[embed_dims] * 4,
        feat_channels=width,
        out_channels=width,
        num_things_classes=num_classes,
        num_queries=20,
        pixel_decoder=dict(
            encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
            positional_encoding=dict(num_feats=width // 2),
        ),
        positional_encoding=dict(num_feats=width // 2),
        transformer_decoder=dict(
            num_layers=3, layer_cfg=dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)
        ),
        loss_cls=dict(class_weight=[1.0] * num_classes + [0.1]),
    ),
    panoptic_fusion_head=dict(num_things_classes=num_classes),
    train_cfg=dict(num_points=1024),
    test_cfg=dict(max_per_image=20),
)
train_cfg = dict(max_iters=200, val_interval=67)
default_hooks = dict(checkpoint=dict(save_best='coco/bbox_mAP', rule='greater'))
