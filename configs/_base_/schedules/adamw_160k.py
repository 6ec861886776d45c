"""UperNet's schedule: 160,000 iterations of AdamW at 2e-5, 1,500 of linear warm-up, then linear decay to 0."""

_base_ = ['adamw.py', 'iterations.py']

interval = 16000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(optimizer=dict(lr=2e-5))
warmup_iters = 1500
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=interval, max_keep_ckpts=2, save_best='mIoU', rule='greater'))
auto_scale_lr = dict(enable=False, base_batch_size=8)
