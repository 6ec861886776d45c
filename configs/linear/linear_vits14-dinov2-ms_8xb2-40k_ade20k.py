"""DINOv2's head on the last four layers of ViT-S/14, frozen. Expect 47.2 mIoU; not run by us.

That is the model card's figure, with several scales and flips; this config tests one scale: short side 640, windows of
640. The stride of the windows is our choice. For other sizes: `_base_.ms.base`, `_base_.ms.large`, `_base_.ms.giant`.

tools/dist_train.sh configs/linear/linear_vits14-dinov2-ms_8xb2-40k_ade20k.py 8
"""

_base_ = [
    '../_base_/models/linear_dinov2.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/default_runtime.py',
]
crop_size = (640, 640)
scale = (2560, 640)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=scale, ratio_range=(1.0, 3.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
model = dict(
    data_preprocessor=dict(size=crop_size),
    test_cfg=dict(crop_size=crop_size, stride=(320, 320)),
    **_base_.ms.small,
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
