"""A linear head on frozen features: AdamW at 1e-3, 1,500 iterations of warm-up, then linear decay to 0 at 40,000."""

_base_ = 'iterations.py'

interval = 4000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=40000, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-4),
)
warmup_iters = 1500
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=interval, max_keep_ckpts=2, save_best='mIoU', rule='greater'))
auto_scale_lr = dict(enable=False, base_batch_size=16)
