"""DETR's 150 epochs: AdamW at 1e-4, the backbone at a tenth of it, a tenth of both after epoch 100, 16 images a step.

Everything is decayed by 1e-4, but tables of relative encodings are not: iRPE's paper does not decay them, its released
scripts do (`--cfg-options optim_wrapper.paramwise_cfg.custom_keys.lookup_table.decay_mult=1`).
"""

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=150, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.1))),
)
param_scheduler = [dict(type='MultiStepLR', milestones=[100], gamma=0.1, by_epoch=True)]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=50),
    checkpoint=dict(
        type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='coco/bbox_mAP', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
# the learning rate is for 8 GPUs x 2 images
auto_scale_lr = dict(enable=False, base_batch_size=16)
