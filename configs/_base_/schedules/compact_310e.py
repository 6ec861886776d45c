"""Compact Transformers' 310 epochs at batch 128: AdamW, 10 epochs of warm-up, a cosine to 1e-5 at 300, then 10 there.

LaPE's Table I says SGD with these rates and this decay; every public config of these models says AdamW with the very
same, and so do we. The rate is not scaled with the batch. Only biases and norms do not decay: the PE does.
"""

_base_ = ['../default_runtime.py', './adamw.py']

batch_size = 128
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=310, val_interval=1)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(optimizer=dict(lr=5.5e-4, weight_decay=0.06), paramwise_cfg=dict(position_decay_mult=1.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-5 / 5.5e-4, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=10, end=300, convert_to_iter_based=True),
]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=100),
    checkpoint=dict(
        type='CheckpointHook', interval=5, max_keep_ckpts=2, save_best='accuracy/top1', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
