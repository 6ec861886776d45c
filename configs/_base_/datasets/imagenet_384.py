"""ImageNet-1K at 384, to fine-tune: the augmentation and the two crop ratios of 224, in steps of 64 images a GPU."""

_base_ = 'imagenet.py'

img_size = 384
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=img_size, **_base_.resize),
    *_base_.train_pipeline[2:],  # what follows the crop has no size
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=int(img_size / 0.875), edge='short', **_base_.resize),
    dict(type='CenterCrop', crop_size=img_size),
    dict(type='PackInputs'),
]
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
custom_hooks = [
    dict(type='mmlape.SecondEvaluationHook', name='crop_1.0', changes=dict(ResizeEdge=dict(scale=img_size)))
]
