"""Segmenter over CeiT-Ti, whose batch norms are synchronised over the GPUs."""

_base_ = 'segmenter.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.CeiT',
        arch='tiny',
        img_size=(512, 512),
        out_type='featmap',
        drop_path_rate=0.1,
        bn_cfg=dict(type='SyncBN'),
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/ceit_tiny_patch16_224.pth'),
    )
)
