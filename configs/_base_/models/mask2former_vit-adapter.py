"""Mask2Former for semantic segmentation over ViT-Adapter-S, for 150 classes; the head is mmsegmentation's."""

width, num_heads = 256, 8
ffn = dict(num_fcs=2, ffn_drop=0.0, act_cfg=dict(type='ReLU', inplace=True))
attention = dict(embed_dims=width, num_heads=num_heads, attn_drop=0.0, proj_drop=0.0, batch_first=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
        test_cfg=dict(size=(512, 512)),
    ),
    backbone=dict(
        type='mmlape.ViTAdapter',
        arch='deit-small',
        pe_joining='default',
        vit_feature_source='interaction',
        drop_path_rate=0.2,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth'),
    ),
    decode_head=dict(
        type='mmlape.Mask2FormerHead',
        upsampled='scores',
        in_channels=[384] * 4,
        strides=[4, 8, 16, 32],
        num_classes=150,
        num_queries=100,
        num_transformer_feat_level=3,
        align_corners=False,
        loss_cls=dict(
            type='mmdet.CrossEntropyLoss',
            use_sigmoid=False,
            loss_weight=2.0,
            reduction='mean',
            class_weight=[1.0] * 150 + [0.1],
        ),
        loss_mask=dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True, reduction='mean', loss_weight=5.0),
        loss_dice=dict(
            type='mmdet.DiceLoss',
            use_sigmoid=True,
            activate=True,
            reduction='mean',
            naive_dice=True,
            eps=1.0,
            loss_weight=5.0,
        ),
        train_cfg=dict(
            num_points=12544,
            oversample_ratio=3.0,
            importance_sample_ratio=0.75,
            assigner=dict(
                type='mmdet.HungarianAssigner',
                match_costs=[
                    dict(type='mmdet.ClassificationCost', weight=2.0),
                    dict(type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
                    dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0),
                ],
            ),
            sampler=dict(type='mmdet.MaskPseudoSampler'),
        ),
        feat_channels=width,
        out_channels=width,
        with_cp=False,
        pixel_decoder=dict(
            type='mmlape.MSDeformAttnPixelDecoder',
            with_cp=False,
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
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
