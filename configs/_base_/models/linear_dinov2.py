"""DINOv2's linear head on its frozen ViT-S/14 without registers, for 150 classes."""

_base_ = 'linear_vit.py'

embed_dims = 384
weights = 'https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/dinov2_vits14_pretrain.pth'
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.VisionTransformer',
        img_size=518,
        patch_size=14,
        out_type='featmap',
        final_norm='every',
        layer_scale_init_value=1.0,
        patch_padding='center',
        interpolate_mode='bicubic-offset',
        arch=dict(embed_dims=embed_dims, num_layers=12, num_heads=6, feedforward_channels=4 * embed_dims),
        ffn_type='mlp',
        frozen_stages=12,
        init_cfg=dict(type='Pretrained', checkpoint=weights),
    ),
    decode_head=dict(
        _delete_=True,
        type='mmlape.BNHead',
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
        in_channels=[embed_dims],
    ),
)
