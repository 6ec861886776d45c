"""Segmenter with a small DeiT on the mini data, default PE: for the demo and the tests, not for comparing methods.

mmlape train configs/segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py
"""

_base_ = [
    '../_base_/models/segmenter_mini.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
train_dataloader = dict(batch_size=16)
train_cfg = dict(max_iters=250, val_interval=84)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
auto_scale_lr = dict(base_batch_size=16)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))
