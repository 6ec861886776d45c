"""big_vision's AugReg schedule: 93,000 steps of 4096 images, AdamW at 1e-3, 10,000 steps of warm-up, a cosine to 0.

Its weight decay of 1e-4 multiplies the schedule, not the rate: torch's is 1e-4 / 1e-3. Only kernels decay.
"""

_base_ = ['adamw.py', 'iterations.py']

batch_size = 4096
train_cfg = dict(type='IterBasedTrainLoop', max_iters=93_000, val_interval=3_100)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    optimizer=dict(lr=1e-3, weight_decay=0.1),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0))),
)
warmup_iters = 10_000
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / warmup_iters, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(logger=dict(interval=100), checkpoint=dict(interval=3_100, max_keep_ckpts=2))
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
