"""CIFAR-100 at 32 pixels with the augmentation of Compact Transformers: crops, flips, RandAugment, erasing."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/cifar100/'
dataset_type = 'CIFAR100'
img_size = 32
mean = [129.3105, 124.1085, 112.404]
std = [68.2125, 65.4075, 70.4055]

# timm's 'random' interpolation: each crop, and each of RandAugment's two operations, is bilinear or bicubic
both = ('bilinear', 'bicubic')
crop = dict(type='RandomResizedCrop', scale=img_size, crop_ratio_range=(0.8, 1.0), backend='pillow')
crops = dict(type='RandomChoice', transforms=[[dict(interpolation=name, **crop)] for name in both])
augment = dict(
    type='RandAugment',
    policies='timm_increasing',
    num_policies=1,
    magnitude_level=9,
    magnitude_std=0.5,
    total_level=10,
)
fill = [round(value) for value in mean]
hparams = [dict(pad_val=fill, interpolation=name) for name in both]
operation = dict(type='RandomChoice', transforms=[[dict(hparams=one, **augment)] for one in hparams])
erasing = dict(
    type='RandomErasing',
    erase_prob=0.25,
    mode='rand',
    min_area_ratio=0.02,
    max_area_ratio=1 / 3,
    fill_color=mean,
    fill_std=std,
)
flip = dict(type='RandomFlip', prob=0.5, direction='horizontal')
train_pipeline = [crops, flip, operation, operation, erasing, dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', download=False, pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type, data_root=data_root, split='test', download=False, pipeline=[dict(type='PackInputs')]
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
