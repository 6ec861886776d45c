"""DeiT's fine-tuning: 30 epochs of AdamW at 5e-6 for every 512 images, constant, with next to no weight decay."""

_base_ = ['adamw.py', 'epochs.py']

batch_size = 256
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=30, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(lr=5e-6 * batch_size / 512, weight_decay=1e-8),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0), dist_token=dict(decay_mult=0.0))),
)
param_scheduler = []
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
