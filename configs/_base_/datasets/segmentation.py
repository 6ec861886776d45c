"""What the datasets of segmentation share: endless, shuffled images to train; one image at a time to test; mIoU.

The dataset that inherits this sets `data_root`, the images of a step, and the datasets with their pipelines.
"""

default_scope = 'mmseg'
visualizer = dict(type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

train_dataloader = dict(num_workers=4, persistent_workers=True, sampler=dict(type='InfiniteSampler', shuffle=True))
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(test_mode=True),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmlape.IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
