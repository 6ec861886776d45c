"""ATSS with FPN over ViT-Adapter-S, for 80 classes; the head is mmdetection's."""

tower = dict(
    num_classes=80,
    in_channels=256,
    stacked_convs=4,
    feat_channels=256,
    anchor_generator=dict(
        type='AnchorGenerator', ratios=[1.0], octave_base_scale=8, scales_per_octave=1, strides=[8, 16, 32, 64, 128]
    ),
    loss_bbox=dict(type='GIoULoss', loss_weight=2.0),
)
model = dict(
    type='ATSS',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    backbone=dict(
        type='mmlape.ViTAdapter',
        arch='deit-small',
        pe_joining='default',
        window_attn=[True, True, False] * 4,
        window_size=14,
        vit_feature_source='last',
        drop_path_rate=0.2,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth'),
    ),
    neck=dict(
        type='FPN', in_channels=[384] * 4, out_channels=256, start_level=1, add_extra_convs='on_output', num_outs=5
    ),
    bbox_head=dict(
        type='ATSSHead',
        bbox_coder=dict(type='DeltaXYWHBBoxCoder', target_means=[0.0] * 4, target_stds=[0.1, 0.1, 0.2, 0.2]),
        loss_cls=dict(type='FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=1.0),
        loss_centerness=dict(type='CrossEntropyLoss', use_sigmoid=True, loss_weight=1.0),
        **tower,
    ),
    train_cfg=dict(assigner=dict(type='ATSSAssigner', topk=9), allowed_border=-1, pos_weight=-1, debug=False),
    test_cfg=dict(
        nms_pre=1000, min_bbox_size=0, score_thr=0.05, nms=dict(type='nms', iou_threshold=0.6), max_per_img=100
    ),
)
