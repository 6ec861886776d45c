"""Swin's 300 epochs: AdamW at 5e-4 per 512 images, 20 epochs of warm-up, a cosine to 5e-6; gradients clipped at 5."""

_base_ = ['adamw.py', 'epochs.py']

batch_size = 512
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
scale = batch_size / 512
optim_wrapper = dict(
    optimizer=dict(lr=5e-4 * scale),
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(custom_keys=dict(cls_token=dict(decay_mult=0.0), dist_token=dict(decay_mult=0.0))),
)
param_scheduler = [
    dict(
        type='mmlape.WarmupCosineLR',
        warmup=20,
        warmup_start=5e-7 * scale,
        eta_min=5e-6 * scale,
        warmup_prefix=True,
        convert_to_iter_based=True,
    )
]
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
