"""CeiT-Ti as an image classifier, for 1000 classes."""

_base_ = './deit.py'

embed_dims = 192
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.CeiT',
        arch='tiny',
        img_size=224,
        out_type='cls_token',
        pe_joining='default',
        drop_path_rate=0.1,
    ),
    head=dict(in_channels=embed_dims),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
