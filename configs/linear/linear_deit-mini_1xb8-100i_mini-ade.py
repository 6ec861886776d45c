"""A small DeiT and a linear layer on the mini data: for the tests, and docs/results/dpn.md.

mmlape train configs/linear/linear_deit-mini_1xb8-100i_mini-ade.py
"""

_base_ = [
    '../_base_/models/linear_mini.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
train_dataloader = dict(batch_size=8)
train_cfg = dict(max_iters=100, val_interval=34)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
auto_scale_lr = dict(base_batch_size=8)
default_hooks = dict(checkpoint=dict(interval=100, save_best='mIoU', rule='greater'))
