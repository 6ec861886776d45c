"""T2T-ViT-7 of ImageNet-1K fine-tuned on CIFAR-100 at 224 pixels, default PE; not run by us.

mmlape train configs/t2t_vit/t2t-vit-7_1xb128-60e-ft224_cifar100.py
"""

_base_ = [
    '../_base_/models/t2t_vit.py',
    '../_base_/datasets/cifar100_224.py',
    '../_base_/schedules/t2t_ft60e.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(
        num_classes=100, to_rgb=False, mean=[125.307, 122.961, 113.8575], std=[51.5865, 50.847, 51.255]
    ),
    backbone=dict(init_cfg=dict(type='Pretrained', checkpoint='pretrained/t2t_vit_7.pth')),
    head=dict(num_classes=100, loss=dict(_delete_=True, type='CrossEntropyLoss')),
    train_cfg=dict(_delete_=True),
)
