"""A linear map from the frozen features of DINOv2-S, with registers, to 150 classes."""

_base_ = './encoder_decoder.py'

embed_dims = 384
model = dict(
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
        in_channels=embed_dims,
        channels=embed_dims,
        in_index=0,
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
    ),
    test_cfg=dict(mode='whole'),
)
