"""CIFAR-100 at 224 pixels as in T2T-ViT's public code: crops out of 28 pixels of black padding, and flips."""

_base_ = 'cifar10.py'

data_root = 'data/cifar100/'
dataset_type = 'CIFAR100'
num_classes = 100
img_size = 224

resize = dict(type='Resize', scale=(img_size, img_size), backend='pillow', interpolation='bilinear')
train_pipeline = [
    resize,
    dict(type='RandomCrop', crop_size=img_size, padding=img_size // 8),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [resize, dict(type='PackInputs')]
train_dataloader = dict(num_workers=8, dataset=dict(type=dataset_type, data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(num_workers=8, dataset=dict(type=dataset_type, data_root=data_root, pipeline=test_pipeline))
test_dataloader = val_dataloader
