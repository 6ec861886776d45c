"""T2T-ViT-7 as an image classifier for 1000 classes, trained with mixup and CutMix."""

_base_ = 'deit.py'

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
    head=dict(in_channels=256),
)
