"""big_vision's fine-tuning: 5,000 steps of 512 images, SGD at 0.03 without weight decay, a cosine to 0."""

_base_ = 'iterations.py'

batch_size = 512
train_cfg = dict(type='IterBasedTrainLoop', max_iters=5_000, val_interval=500)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='SGD', lr=0.03, momentum=0.9, weight_decay=0.0),
    clip_grad=dict(max_norm=1.0),
)
warmup_iters = 500
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / warmup_iters, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=500, max_keep_ckpts=1))
auto_scale_lr = dict(enable=False, base_batch_size=batch_size)
