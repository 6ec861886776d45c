"""Swin-T as an image classifier, for 1000 classes; Swin-S ends as wide."""

_base_ = 'deit.py'

model = dict(
    backbone=dict(
        _delete_=True, type='mmlape.SwinTransformer', img_size=224, arch='tiny', pe_type='rpe', drop_path_rate=0.2
    ),
    head=dict(type='LinearClsHead', in_channels=768),
)
