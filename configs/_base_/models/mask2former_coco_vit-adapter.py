"""Mask2Former for instances on COCO over ViT-Adapter-S, for 80 classes; all but the pixel decoder is mmdetection's."""

width, num_heads = 256, 8
dropless = dict(attn_drop=0.0, proj_drop=0.0, batch_first=True)
ffn = dict(num_fcs=2, ffn_drop=0.0, act_cfg=dict(type='ReLU', inplace=True))
attention = dict(embed_dims=width, num_heads=num_heads, **dropless)
model = dict(
    type='Mask2Former',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        pad_mask=True,
        mask_pad_value=0,
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
    panoptic_head=dict(
        type='Mask2FormerHead',
        in_channels=[384] * 4,
        strides=[4, 8, 16, 32],
        feat_channels=width,
        out_channels=width,
        num_things_classes=80,
        num_stuff_classes=0,
        num_queries=100,
        num_transformer_feat_level=3,
        pixel_decoder=dict(
            type='mmlape.MSDeformAttnPixelDecoder',
            num_outs=3,
            norm_cfg=dict(type='GN', num_groups=32),
            act_cfg=dict(type='ReLU'),
            encoder=dict(
                num_layers=6,
                layer_cfg=dict(
                    self_attn_cfg=dict(
                        embed_dims=width,
                        num_heads=num_heads,
                        num_levels=3,
                        num_points=4,
                        dropout=0.0,
                        batch_first=True,
                    ),
                    ffn_cfg=dict(embed_dims=width, feedforward_channels=4 * width, **ffn),
                ),
            ),
            positional_encoding=dict(num_feats=width // 2, normalize=True),
        ),
        enforce_decoder_input_project=False,
        positional_encoding=dict(num_feats=width // 2, normalize=True),
        transformer_decoder=dict(
            return_intermediate=True,
            num_layers=9,
            layer_cfg=dict(
                self_attn_cfg=attention,
                cross_attn_cfg=attention,
                ffn_cfg=dict(embed_dims=width, feedforward_channels=8 * width, **ffn),
            ),
        ),
        loss_cls=dict(
            type='CrossEntropyLoss',
            use_sigmoid=False,
            loss_weight=2.0,
            reduction='mean',
            class_weight=[1.0] * 80 + [0.1],
        ),
        loss_mask=dict(type='CrossEntropyLoss', use_sigmoid=True, reduction='mean', loss_weight=5.0),
        loss_dice=dict(
            type='DiceLoss',
            use_sigmoid=True,
            activate=True,
            reduction='mean',
            naive_dice=True,
            eps=1.0,
            loss_weight=5.0,
        ),
    ),
    panoptic_fusion_head=dict(
        type='MaskFormerFusionHead', num_things_classes=80, num_stuff_classes=0, loss_panoptic=None
    ),
    train_cfg=dict(
        num_points=12544,
        oversample_ratio=3.0,
        importance_sample_ratio=0.75,
        assigner=dict(
            type='HungarianAssigner',
            match_costs=[
                dict(type='ClassificationCost', weight=2.0),
                dict(type='CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
                dict(type='DiceCost', weight=5.0, pred_act=True, eps=1.0),
            ],
        ),
        sampler=dict(type='MaskPseudoSampler'),
    ),
    test_cfg=dict(
        panoptic_on=False, semantic_on=False, instance_on=True, max_per_image=100, iou_thr=0.8, filter_low_score=True
    ),
)
