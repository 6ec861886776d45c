"""Segmenter over T2T-ViT-7."""

_base_ = 'segmenter.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.T2TViT',
        arch='t2t-vit-7',
        img_size=(512, 512),
        out_type='featmap',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/71.7_T2T_ViT_7.pth.tar'),
    ),
    decode_head=dict(in_channels=256, channels=256, embed_dims=256, num_heads=4),
)
