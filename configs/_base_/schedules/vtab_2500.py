"""DPN's fine-tuning on VTAB: 2,500 steps of SGD, 200 of warm-up, then a cosine to 0; clipped at 1, no weight decay."""

_base_ = 'iterations.py'

warmup_iters = 200
train_cfg = dict(type='IterBasedTrainLoop', max_iters=2500, val_interval=2500)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=3e-4, momentum=0.9, weight_decay=0.0),
    clip_grad=dict(max_norm=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / warmup_iters, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=500, max_keep_ckpts=1))
auto_scale_lr = dict(enable=False, base_batch_size=512)
