"""A small DeiT on single digits, default PE: for the demo and the tests, about a minute and a half on two CPU cores.

tools/train.py configs/classification/digits/deit-mini_1xb32-5e_mini-digits.py
"""

_base_ = [
    '../../_base_/models/deit.py',
    '../../_base_/models/deit_mini.py',
    '../../_base_/datasets/mini_digits.py',
    '../../_base_/schedules/mini_digits.py',
]
model = dict(
    data_preprocessor=dict(num_classes=_base_.num_classes),
    # averaged patch tokens, so that each one learns features for a dense head
    backbone=dict(
        arch=dict(_delete_=True, **_base_.deit_mini),
        img_size=_base_.img_size,
        out_type='avg_featmap',
        drop_path_rate=0.0,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=_base_.init_std),
    ),
    head=dict(
        num_classes=_base_.num_classes, in_channels=_base_.deit_mini.embed_dims, loss=dict(label_smooth_val=0.0)
    ),
)
