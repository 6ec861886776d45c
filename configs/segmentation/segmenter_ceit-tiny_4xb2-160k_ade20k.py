"""Segmenter (mask transformer) over CeiT-Ti, default PE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_ceit-tiny_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_deit-tiny_4xb2-160k_ade20k.py'

embed_dims = 192
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.CeiT',
        arch='tiny',
        img_size=_base_.crop_size,
        out_type='featmap',
        drop_path_rate=0.1,
        bn_cfg=dict(type='SyncBN'),
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/ceit_tiny_patch16_224.pth'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, embed_dims=embed_dims, num_heads=embed_dims // 64),
)
