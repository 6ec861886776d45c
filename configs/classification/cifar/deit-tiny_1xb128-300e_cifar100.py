"""DeiT-Ti with patches of 4 on CIFAR-100, default PE; not run by us.

tools/train.py configs/classification/cifar/deit-tiny_1xb128-300e_cifar100.py
"""

_base_ = './deit-tiny_1xb128-300e_cifar10.py'

data_root = 'data/cifar100/'
dataset_type = 'CIFAR100'
num_classes = 100
model = dict(data_preprocessor=dict(num_classes=num_classes), head=dict(num_classes=num_classes))
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(lr=6e-4))  # LaPE's Table I has a rate for each of the two datasets
