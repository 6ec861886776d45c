"""CeiT-Ti as an image classifier for 1000 classes, trained with mixup and CutMix."""

_base_ = 'deit.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.CeiT',
        img_size=224,
        out_type='cls_token',
        pe_joining='default',
        drop_path_rate=0.1,
        arch='tiny',
    )
)
