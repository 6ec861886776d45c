"""T2T-ViT's fine-tuning: 60 epochs of SGD at batch 128, 5e-2 and a cosine to 2e-4; the backbone at a hundredth."""

_base_ = 'epochs.py'

batch_size = 128
max_epochs = 60
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=1)
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='SGD', lr=5e-2, momentum=0.9, weight_decay=5e-4),
    paramwise_cfg=dict(position_decay_mult=1.0, custom_keys=dict(backbone=dict(lr_mult=0.01))),
)
param_scheduler = [dict(type='CosineAnnealingLR', T_max=max_epochs, eta_min=2e-4)]
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
