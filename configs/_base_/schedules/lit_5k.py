"""LiT's public COCO recipe: the text tower, the loss and 5,000 steps of 4096 pairs, Adam at 1e-3, a cosine to 0.

From big_vision's `lit_coco.py`, whose weight decay of 0.01 multiplies the schedule, not the rate. Only kernels decay.
"""

_base_ = ['adamw.py', 'iterations.py']

batch_size = 4096
train_cfg = dict(type='IterBasedTrainLoop', max_iters=5_000, val_interval=1_000)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    optimizer=dict(lr=1e-3, weight_decay=10.0),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(
        custom_keys=dict(token_embed=_base_.no_decay, pos_embed=_base_.no_decay, temperature=_base_.no_decay)
    ),
)
warmup_iters = 150
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / warmup_iters, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=1_000, max_keep_ckpts=2))
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
