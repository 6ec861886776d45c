"""Compact Transformers' 310 epochs at batch 128: AdamW, timm's cosine to 1e-5 at 300, then 10 there; 10 of warm-up."""

_base_ = ['adamw.py', 'epochs.py']

batch_size = 128
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=310, val_interval=1)
optim_wrapper = dict(optimizer=dict(lr=5.5e-4, weight_decay=0.06), paramwise_cfg=dict(position_decay_mult=1.0))
param_scheduler = [dict(type='mmlape.WarmupCosineLR', warmup=10, warmup_start=1e-5, eta_min=1e-5, T_max=300)]
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
