"""Cascade Mask R-CNN with FPN over ViT-Adapter-S, 80 classes; heads of four convolutions with SyncBN and GIoU."""

_base_ = 'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py'

bbox_heads = [
    dict(
        type='ConvFCBBoxHead',
        num_shared_convs=4,
        num_shared_fcs=1,
        in_channels=256,
        conv_out_channels=256,
        fc_out_channels=1024,
        roi_feat_size=7,
        num_classes=80,
        bbox_coder=dict(type='DeltaXYWHBBoxCoder', target_means=[0.0] * 4, target_stds=stds),
        reg_class_agnostic=False,
        reg_decoded_bbox=True,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
        loss_bbox=dict(type='GIoULoss', loss_weight=10.0),
    )
    for stds in ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
]
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.ViTAdapter',
        pe_joining='default',
        window_attn=[True, True, False] * 4,
        window_size=14,
        vit_feature_source='last',
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth'),
        arch='deit-small',
        drop_path_rate=0.2,
    ),
    neck=dict(in_channels=[384] * 4),
    roi_head=dict(bbox_head=bbox_heads),
)
