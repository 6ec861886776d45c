"""Segmenter over DINOv2-S of timm, with registers."""

_base_ = 'segmenter.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViT',
        model_name='vit_small_patch14_reg4_dinov2.lvd142m',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(in_channels=384, channels=384, embed_dims=384, num_heads=6),
)
