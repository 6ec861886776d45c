"""What schedules in iterations share: a line of the log every 50, checkpoints by iteration and at the end."""

default_hooks = dict(
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, save_last=True),
)
log_processor = dict(by_epoch=False)
