"""A linear map from the frozen features of DINOv2-S, with registers, to 150 classes.

Logits at the stride of the patches are resized to the image; there is no other head, and no dropout.
"""

model = dict(
    type='EncoderDecoder',
    # images are normalised as the weights expect, and padded to the crop
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
    ),
    backbone=dict(
        type='mmlape.TimmViT',
        model_name='vit_small_patch14_reg4_dinov2.lvd142m',
        frozen=True,
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(
        type='FCNHead',
        num_convs=0,
        concat_input=False,
        in_index=0,
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
        in_channels=384,
        channels=384,
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
