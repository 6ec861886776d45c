"""Segmenter's schedule: 160,000 iterations of SGD at 1e-3 without weight decay, polynomial decay (0.9) to 1e-5."""

_base_ = 'iterations.py'

interval = 16000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='SGD', lr=1e-3, momentum=0.9, weight_decay=0.0),
)
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=1e-5, by_epoch=False, begin=0)]
default_hooks = dict(checkpoint=dict(interval=interval, max_keep_ckpts=2, save_best='mIoU', rule='greater'))
auto_scale_lr = dict(enable=False, base_batch_size=8)
