"""ImageNet-1K at 224 with DeiT's augmentation: RandAugment, random erasing, each image three times."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/imagenet/'
img_size = 224
bgr_mean = [103.53, 116.28, 123.675]
bgr_std = [57.375, 57.12, 58.395]
resize = dict(backend='pillow', interpolation='bicubic')
flip = dict(type='RandomFlip', prob=0.5, direction='horizontal')
augment = dict(
    type='RandAugment',
    policies='timm_increasing',
    num_policies=2,
    magnitude_level=9,
    magnitude_std=0.5,
    total_level=10,
    hparams=dict(pad_val=[104, 116, 124], interpolation='bicubic'),
)
erasing = dict(
    type='RandomErasing',
    erase_prob=0.25,
    mode='rand',
    min_area_ratio=0.02,
    max_area_ratio=1 / 3,
    fill_color=bgr_mean,
    fill_std=bgr_std,
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=img_size, **resize),
    flip,
    augment,
    erasing,
    dict(type='PackInputs'),
]
# DeiT's crop ratio; LaPE's 1.0 is evaluated by the hook below
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=int(img_size / 0.875), edge='short', **resize),
    dict(type='CenterCrop', crop_size=img_size),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=256,
    num_workers=10,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='RepeatAugSampler', num_repeats=3),
    dataset=dict(type='ImageNet', data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=10,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='ImageNet', data_root=data_root, split='val', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
custom_hooks = [
    dict(type='mmlape.SecondEvaluationHook', name='crop_1.0', changes=dict(ResizeEdge=dict(scale=img_size)))
]
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
