"""A linear map from the frozen features of DINOv2-S, with registers, to 150 classes."""

_base_ = 'linear_vit.py'

embed_dims = 384
name = 'vit_small_patch14_reg4_dinov2.lvd142m'
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViT',
        model_name=name,
        frozen=True,
        init_cfg=dict(type='Pretrained', checkpoint=f'hf-hub:timm/{name}'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims),
    test_cfg=dict(_delete_=True, mode='whole'),
)
