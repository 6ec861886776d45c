"""Sun397 from scratch: 300 epochs of 512 images, AdamW at 1e-3, a tenth of warm-up, a cosine to 0; clipped at 1."""

_base_ = 'adamw.py'

batch_size = 512
max_epochs = 300
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=10)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    optimizer=dict(lr=1e-3, weight_decay=0.1),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0))),
)
warmup = max_epochs // 10
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=warmup, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0.0, begin=warmup, convert_to_iter_based=True),
]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=20),
    checkpoint=dict(type='CheckpointHook', interval=10, max_keep_ckpts=1, save_last=True),
)
log_processor = dict(by_epoch=True)
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
