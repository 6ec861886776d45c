"""DeiT's 300 epochs: AdamW at 5e-4 per 512 images of the batch, 5 epochs of warm-up, a cosine to 1e-5 from epoch 0."""

_base_ = ['adamw.py', 'epochs.py']

batch_size = 1024
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(lr=5e-4 * batch_size / 512),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0), dist_token=dict(decay_mult=0.0))),
)
param_scheduler = [dict(type='mmlape.WarmupCosineLR', warmup=5, warmup_start=1e-6, eta_min=1e-5)]
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
