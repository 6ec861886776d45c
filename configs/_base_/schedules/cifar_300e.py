"""300 epochs at batch 128 with the rate, decay and warm-up of LaPE's Table I for CIFAR-10, by AdamW."""

_base_ = './deit_300e.py'

batch_size = 128
optim_wrapper = dict(optimizer=dict(lr=5.5e-4, weight_decay=0.06))
param_scheduler = [dict(type='mmlape.WarmupCosineLR', warmup=10, warmup_start=1e-6, eta_min=1e-5)]
auto_scale_lr = dict(base_batch_size=batch_size)
