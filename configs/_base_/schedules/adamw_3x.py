"""36 epochs of AdamW at 1e-4: 500 iterations of warm-up, then a tenth of the rate after epochs 27 and 33."""

_base_ = 'adamw.py'

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=36, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(optimizer=dict(lr=1e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', milestones=[27, 33], gamma=0.1, by_epoch=True),
]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=50),
    checkpoint=dict(
        type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='coco/bbox_mAP', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
# the learning rate is for 4 GPUs x 2 images
auto_scale_lr = dict(enable=False, base_batch_size=8)
