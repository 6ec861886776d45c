"""36 epochs of AdamW at 1e-4: 500 iterations of warm-up, then a tenth of the rate after epochs 27 and 33."""

_base_ = ['adamw.py', 'detection.py']

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=36, val_interval=1)
optim_wrapper = dict(optimizer=dict(lr=1e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', milestones=[27, 33], gamma=0.1, by_epoch=True),
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
