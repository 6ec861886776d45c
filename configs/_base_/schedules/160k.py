"""160,000 iterations, evaluated and saved every 16,000; the file that inherits this one sets the optimiser.

`train_cfg.max_iters` is the only length: the learning rate decays until training ends.
"""

_base_ = '../default_runtime.py'

interval = 16000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    checkpoint=dict(
        type='CheckpointHook',
        by_epoch=False,
        interval=interval,
        max_keep_ckpts=2,
        save_best='mIoU',
        rule='greater',
        save_last=True,
    ),
)
log_processor = dict(by_epoch=False)
# the learning rate is for 4 GPUs x 2 images
auto_scale_lr = dict(enable=False, base_batch_size=8)
