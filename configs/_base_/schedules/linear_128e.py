"""The linear decoder's 128 epochs of ADE20K in steps: AdamW at 3e-5 without warm-up, polynomial decay (0.9) to 0."""

_base_ = 'iterations.py'

steps_per_epoch = 20210 // 16
interval = 16 * steps_per_epoch
train_cfg = dict(type='IterBasedTrainLoop', max_iters=128 * steps_per_epoch, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=3e-5, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(flat_decay_mult=0.0, position_decay_mult=1.0),
)
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=0.0, by_epoch=False, begin=0)]
default_hooks = dict(checkpoint=dict(interval=interval, max_keep_ckpts=2, save_best='mIoU', rule='greater'))
auto_scale_lr = dict(enable=False, base_batch_size=16)
