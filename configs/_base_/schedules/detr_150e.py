"""DETR's 150 epochs: AdamW at 1e-4, the backbone at a tenth of it, a tenth of both after epoch 100."""

_base_ = 'detection.py'

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=150, val_interval=1)
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.1))),
)
param_scheduler = [dict(type='MultiStepLR', milestones=[100], gamma=0.1, by_epoch=True)]
auto_scale_lr = dict(enable=False, base_batch_size=16)
