"""A linear map from the frozen features of DINOv2-S, with registers, to 150 classes."""

_base_ = './linear_head.py'

embed_dims = 384
model = dict(
    backbone=dict(
        type='mmlape.TimmViT',
        model_name='vit_small_patch14_reg4_dinov2.lvd142m',
        frozen=True,
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims),
    test_cfg=dict(mode='whole'),
)
