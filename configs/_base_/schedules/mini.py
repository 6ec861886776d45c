"""One or two minutes on two CPU cores, in iterations: AdamW, a short warm-up, then linear decay to 0."""

_base_ = ['adamw.py', 'iterations.py']

train_cfg = dict(type='IterBasedTrainLoop', max_iters=400, val_interval=100)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    optimizer=dict(lr=1e-3, betas=(0.9, 0.99), fused=True),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.3))),
)
warmup_iters = 30
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=100, max_keep_ckpts=1))
auto_scale_lr = dict(enable=False, base_batch_size=4)
