"""A small text tower for the mini data, 600 steps of 64 pairs: AdamW, 30 steps of warm-up, then a cosine to 0."""

_base_ = 'adamw.py'

train_cfg = dict(type='IterBasedTrainLoop', max_iters=600, val_interval=200)
val_cfg = dict()
test_cfg = dict()
no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(custom_keys=dict(token_embed=no_decay, pos_embed=no_decay, temperature=no_decay)),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / 30, by_epoch=False, begin=0, end=30),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=30),
]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=200, max_keep_ckpts=1, save_last=True),
)
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(enable=False, base_batch_size=64)
