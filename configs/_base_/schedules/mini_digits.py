"""Pretraining on the digits, in epochs: AdamW, half an epoch of warm-up, then a cosine to 1e-5."""

_base_ = 'adamw.py'

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=5, val_interval=2)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    optimizer=dict(lr=2e-3, betas=(0.9, 0.99), fused=True),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0), pos_embed=dict(lr_mult=3.0))),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, begin=0, end=0.5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=0.5, convert_to_iter_based=True),
]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=10),
    checkpoint=dict(
        type='CheckpointHook', interval=5, max_keep_ckpts=1, save_best='accuracy/top1', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
auto_scale_lr = dict(enable=False, base_batch_size=32)
