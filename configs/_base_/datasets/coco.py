"""COCO 2017, what its tasks share: the files of its boxes and masks, two images a GPU, one at a time to test.

The dataset that inherits this sets the pipelines, and which of boxes and masks are evaluated.
"""

default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/coco/'
train_ann_file = 'annotations/instances_train2017.json'
val_ann_file = 'annotations/instances_val2017.json'
train_dataloader = dict(
    batch_size=2,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    batch_sampler=dict(type='AspectRatioBatchSampler'),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        ann_file=train_ann_file,
        data_prefix=dict(img='train2017/'),
        filter_cfg=dict(filter_empty_gt=True, min_size=32),
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        ann_file=val_ann_file,
        data_prefix=dict(img='val2017/'),
        test_mode=True,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmlape.CocoMetric', ann_file=data_root + val_ann_file)
test_evaluator = val_evaluator
