"""T2T-ViT-7 as an image classifier, for 1000 classes."""

_base_ = './deit.py'

embed_dims = 256
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.T2TViT',
        arch='t2t-vit-7',
        img_size=224,
        out_type='cls_token',
        pe_type='sincos1d',
        pe_joining='default',
        drop_path_rate=0.1,
    ),
    head=dict(in_channels=embed_dims),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
