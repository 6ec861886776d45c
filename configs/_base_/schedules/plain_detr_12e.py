"""Plain-DETR's 12 epochs: AdamW at 2e-4, 1,000 iterations of warm-up, a tenth after epoch 11, 16 images a step."""

_base_ = ['adamw.py', 'detection.py']

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(lr=2e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    paramwise_cfg=dict(custom_keys=dict(cpb_mlp=_base_.no_decay)),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', milestones=[11], gamma=0.1, by_epoch=True),
]
auto_scale_lr = dict(enable=False, base_batch_size=16)
