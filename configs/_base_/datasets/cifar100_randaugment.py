"""CIFAR-100 as CIFAR-10, with random erasing.

`data_root` holds the unpacked `cifar-100-python/` of https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz.
"""

_base_ = './cifar10_randaugment.py'

data_root = 'data/cifar100/'
dataset_type = 'CIFAR100'
mean = [129.3105, 124.1085, 112.404]
std = [68.2125, 65.4075, 70.4055]

fill = [round(value) for value in mean]
hparams = [dict(pad_val=fill, interpolation=name) for name in _base_.both]
operation = dict(type='RandomChoice', transforms=[[dict(hparams=one, **_base_.augment)] for one in hparams])
erasing = dict(_base_.erasing, fill_color=mean, fill_std=std)
train_pipeline = [_base_.crops, _base_.flip, operation, operation, erasing, dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
