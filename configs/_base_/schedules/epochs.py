"""What schedules of classifiers in epochs share: validation after each, checkpoints of the last, the best accuracy."""

val_cfg = dict()
test_cfg = dict()
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=100),
    checkpoint=dict(
        type='CheckpointHook', interval=5, max_keep_ckpts=2, save_best='accuracy/top1', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
