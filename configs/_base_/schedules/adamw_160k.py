"""UperNet's schedule: AdamW at 2e-5, 1,500 iterations of linear warm-up, then linear decay to 0."""

_base_ = ['./160k.py', './adamw.py']

warmup_iters = 1500
optim_wrapper = dict(optimizer=dict(lr=2e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
