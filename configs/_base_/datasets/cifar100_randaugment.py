"""CIFAR-100 as CIFAR-10, and random erasing.

`data_root` holds the unpacked `cifar-100-python/` of https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz.
"""

_base_ = './cifar10_randaugment.py'

data_root = 'data/cifar100/'
dataset_type = 'CIFAR100'
mean = [129.3105, 124.1085, 112.404]
std = [68.2125, 65.4075, 70.4055]

train_pipeline = [
    _base_.crops,
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=2,
        magnitude_level=9,
        magnitude_std=0.5,
        total_level=10,
        hparams=dict(pad_val=[round(value) for value in mean], interpolation='bicubic'),
    ),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=mean,
        fill_std=std,
    ),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
