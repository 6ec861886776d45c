"""ImageNet-1K at 224 with T2T-ViT's augmentation: RandAugment, random erasing, each image once."""

_base_ = 'imagenet.py'

# timm's 'random' interpolation: each crop, and each of RandAugment's two operations, is bilinear or bicubic
both = ('bilinear', 'bicubic')
crop = dict(type='RandomResizedCrop', scale=_base_.img_size, backend='pillow')
crops = dict(type='RandomChoice', transforms=[[dict(crop, interpolation=name)] for name in both])
augment = dict(_base_.augment, num_policies=1)
hparams = [dict(pad_val=[104, 116, 124], interpolation=name) for name in both]
operation = dict(type='RandomChoice', transforms=[[dict(augment, hparams=values)] for values in hparams])
train_pipeline = [
    dict(type='LoadImageFromFile'),
    crops,
    _base_.flip,
    operation,
    operation,
    _base_.erasing,
    dict(type='PackInputs'),
]
# the crop ratio of the public code, 0.9; that of 1.0 is evaluated last, and in each test
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=int(_base_.img_size / 0.9), edge='short', **_base_.resize),
    dict(type='CenterCrop', crop_size=_base_.img_size),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True), dataset=dict(pipeline=train_pipeline)
)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
