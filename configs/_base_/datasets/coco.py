"""COCO 2017, what its tasks share: the files of its boxes and masks, two images a GPU, one at a time to test."""

default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/coco/'
train_ann_file = 'annotations/instances_train2017.json'
val_ann_file = 'annotations/instances_val2017.json'
load_image = dict(type='LoadImageFromFile')
load_boxes = dict(type='LoadAnnotations', with_bbox=True)
load_masks = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
pack = dict(type='PackDetInputs')
pack_test = dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))
# DETR's sizes: the shorter side, and the limit of the longer one
longest_side = 1333
scales = [(side, longest_side) for side in range(480, 801, 32)]
choose_scale = dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)
crop_before = dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600), allow_negative_crop=True)
resize_before = dict(
    type='RandomChoiceResize', scales=[(side, longest_side) for side in (400, 500, 600)], keep_ratio=True
)
resize_or_crop = [
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomChoice', transforms=[[choose_scale], [resize_before, crop_before, choose_scale]]),
]
resize_test = dict(type='Resize', scale=(longest_side, 800), keep_ratio=True)

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
