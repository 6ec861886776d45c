"""DETR over ResNet-50 with frozen batch norms, 100 queries, 80 classes; all but the encoder is mmdetection's."""

embed_dims = 256
drop_rate = 0.1
attn = dict(embed_dims=embed_dims, num_heads=8, dropout=drop_rate, batch_first=True)
ffn = dict(
    embed_dims=embed_dims,
    feedforward_channels=8 * embed_dims,
    num_fcs=2,
    ffn_drop=drop_rate,
    act_cfg=dict(type='ReLU', inplace=True),
)
model = dict(
    type='mmlape.DETR',
    pe_type='sine',
    pe_joining='default',
    num_queries=100,
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=1,
    ),
    backbone=dict(
        type='ResNet',
        depth=50,
        num_stages=4,
        out_indices=(3,),
        frozen_stages=1,
        norm_cfg=dict(type='BN', requires_grad=False),
        norm_eval=True,
        style='pytorch',
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50'),
    ),
    neck=dict(
        type='ChannelMapper',
        in_channels=[2048],
        kernel_size=1,
        out_channels=embed_dims,
        act_cfg=None,
        norm_cfg=None,
        num_outs=1,
        init_cfg=dict(type='mmlape.TorchInit', layer='Conv2d'),
    ),
    encoder=dict(num_layers=6, layer_cfg=dict(self_attn_cfg=attn, ffn_cfg=ffn), with_cp=False),
    decoder=dict(
        num_layers=6, layer_cfg=dict(self_attn_cfg=attn, cross_attn_cfg=attn, ffn_cfg=ffn), return_intermediate=True
    ),
    positional_encoding=dict(num_feats=embed_dims // 2, normalize=True),
    bbox_head=dict(
        type='DETRHead',
        num_classes=80,
        embed_dims=embed_dims,
        loss_cls=dict(
            type='CrossEntropyLoss', bg_cls_weight=0.1, use_sigmoid=False, loss_weight=1.0, class_weight=1.0
        ),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0),
    ),
    train_cfg=dict(
        assigner=dict(
            type='HungarianAssigner',
            match_costs=[
                dict(type='ClassificationCost', weight=1.0),
                dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
                dict(type='IoUCost', iou_mode='giou', weight=2.0),
            ],
        )
    ),
    test_cfg=dict(max_per_img=100),
)
