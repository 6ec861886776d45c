"""300 epochs at batch 128 with the rate, decay and warm-up of LaPE's Table I for CIFAR-10, by AdamW."""

_base_ = ['adamw.py', 'epochs.py']

batch_size = 128
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(lr=5.5e-4, weight_decay=0.06),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0), dist_token=dict(decay_mult=0.0))),
)
param_scheduler = [dict(type='mmlape.WarmupCosineLR', warmup=10, warmup_start=1e-6, eta_min=1e-5)]
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
