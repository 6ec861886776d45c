"""T2T-ViT's 310 epochs: AdamW at 1e-3, 10 epochs of warm-up, a cosine to 1e-5 until epoch 300, 10 epochs at 1e-5."""

_base_ = ['adamw.py', 'epochs.py']

batch_size = 1024
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=310, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3, weight_decay=0.03),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0), dist_token=dict(decay_mult=0.0))),
)
param_scheduler = [dict(type='mmlape.WarmupCosineLR', warmup=10, warmup_start=1e-6, eta_min=1e-5, T_max=300)]
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
