"""A small text tower for the mini data, 600 steps of 64 pairs: AdamW, 30 steps of warm-up, then a cosine to 0."""

_base_ = ['adamw.py', 'iterations.py']

train_cfg = dict(type='IterBasedTrainLoop', max_iters=600, val_interval=200)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(
        custom_keys=dict(token_embed=_base_.no_decay, pos_embed=_base_.no_decay, temperature=_base_.no_decay)
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / 30, by_epoch=False, begin=0, end=30),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=30),
]
default_hooks = dict(checkpoint=dict(interval=200, max_keep_ckpts=1))
auto_scale_lr = dict(enable=False, base_batch_size=64)
