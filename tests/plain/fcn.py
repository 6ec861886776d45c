"""MMSegmentation's FCN, made small, on the mini data."""

_base_ = 'mmseg::fcn/fcn_r50-d8_4xb4-80k_ade20k-512x512.py'

classes = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'china', 'flower')
data_root = 'mini/ade/'
model = dict(
    pretrained=None,
    data_preprocessor=dict(size=(64, 64)),
    backbone=dict(depth=18, base_channels=8, norm_cfg=dict(type='BN')),
    decode_head=dict(in_channels=64, channels=16, num_classes=12, norm_cfg=dict(type='BN')),
    auxiliary_head=dict(in_channels=32, channels=8, num_classes=12, norm_cfg=dict(type='BN')),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='Resize', scale=(64, 64)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 64)),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
dataset = dict(
    type='BaseSegDataset', data_root=data_root, metainfo=dict(classes=classes), reduce_zero_label=True, _delete_=True
)
train_dataloader = dict(
    batch_size=2,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
        **dataset,
    ),
)
test_dataloader = val_dataloader
train_cfg = dict(max_iters=8, val_interval=4)
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=4))
