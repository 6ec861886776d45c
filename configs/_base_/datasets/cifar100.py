"""CIFAR-100 at its own 32 pixels, as CIFAR-10: padded crops and flips."""

_base_ = 'cifar10.py'

data_root = 'data/cifar100/'
dataset_type = 'CIFAR100'
num_classes = 100

train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
