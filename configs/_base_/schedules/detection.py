"""What schedules of detectors in epochs share: validation after each, checkpoints of the last three, the best AP."""

val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=50),
    checkpoint=dict(
        type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='coco/bbox_mAP', rule='greater', save_last=True
    ),
)
log_processor = dict(by_epoch=True)
