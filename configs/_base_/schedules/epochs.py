"""What classifiers' epochs share: a validation after each, and the best checkpoint by top-1 beside the newest two."""

train_cfg = dict(type='EpochBasedTrainLoop', val_interval=1)
val_cfg = dict()
test_cfg = dict()
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=100),
    checkpoint=dict(
        type='CheckpointHook', interval=5, max_keep_ckpts=2, save_best='accuracy/top1', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
auto_scale_lr = dict(enable=False)
