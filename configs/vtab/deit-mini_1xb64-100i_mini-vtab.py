"""A small DeiT on a set of the mini VTAB: digits, or an arm of studies/vtab-mini.yml; some seconds on two CPU cores.

mmlape train configs/vtab/deit-mini_1xb64-100i_mini-vtab.py
"""

_base_ = [
    '../_base_/models/vit_vtab.py',
    '../_base_/datasets/vtab.py',
    '../_base_/schedules/vtab_2500.py',
    '../_base_/default_runtime.py',
]
# MMEngine reads these from the environment; the arms of the study set them
vtab = dict(name='mini-{{$VTAB_SET:digits}}', group='{{$VTAB_GROUP:natural}}')
num_classes = int('{{$VTAB_CLASSES:10}}')
img_size = 64
data_root = 'data/mini/vtab/{{$VTAB_SET:digits}}/'
pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(img_size, img_size)), dict(type='PackInputs')]
dataset = dict(
    data_root=data_root, metainfo=dict(classes=[str(label) for label in range(num_classes)]), pipeline=pipeline
)
train_dataloader = dict(batch_size=64, num_workers=1, dataset=dataset)
val_dataloader = dict(num_workers=1, dataset=dataset)
test_dataloader = val_dataloader
# the model of configs/deit/deit-mini_1xb32-5e_mini-digits.py
model = dict(
    data_preprocessor=dict(num_classes=num_classes, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512),
        img_size=img_size,
        patch_size=16,
        out_type='avg_featmap',
        with_prefix_pe=True,
        pe_type='learnable',
        act_cfg=None,
    ),
    head=dict(num_classes=num_classes, in_channels=128, hidden_dim=None),
)
warmup_iters = 10
train_cfg = dict(max_iters=100, val_interval=100)
optim_wrapper = dict(optimizer=dict(lr=3e-2))
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / warmup_iters, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=50))
auto_scale_lr = dict(base_batch_size=64)
