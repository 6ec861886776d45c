"""ViT-Lite-7/4 on CIFAR-10, default PE. Expect 93.448 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/vit-lite-7-4_1xb128-310e_cifar10.py
"""

_base_ = './cct-7-3x1_1xb128-310e_cifar10.py'

model = dict(backbone=dict(arch='vit-lite-7/4'))
# the public code's file of CIFAR-10 erases, that of CCT-7/3x1 does not
train_pipeline = _base_.train_pipeline
train_pipeline.insert(-1, _base_.erasing)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
