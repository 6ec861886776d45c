"""COCO 2017 with panoptic masks: DETR's multi-scale resizing; one image per GPU.

`data_root` is the only path: `--cfg-options data_root=DIR/` changes it everywhere.
"""

_base_ = 'coco.py'

data_root = 'data/coco/'
train_ann_file = 'annotations/panoptic_train2017.json'
val_ann_file = 'annotations/panoptic_val2017.json'
crop_size = (1024, 1024)  # what costs are counted for; nothing is cropped
longest_side = 1333
scales = [(side, longest_side) for side in range(480, 801, 32)]

train_pipeline = [
    dict(type='LoadImageFromFile', to_float32=True),
    dict(type='LoadPanopticAnnotations', with_bbox=True, with_mask=True, with_seg=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(side, longest_side) for side in (400, 500, 600)],
                    keep_ratio=True,
                ),
                dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600), allow_negative_crop=True),
                dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(longest_side, 800), keep_ratio=True),
    dict(type='LoadPanopticAnnotations'),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(
    batch_size=1,
    dataset=dict(
        type='CocoPanopticDataset',
        ann_file=train_ann_file,
        data_prefix=dict(seg='annotations/panoptic_train2017/'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    dataset=dict(
        type='CocoPanopticDataset',
        ann_file=val_ann_file,
        data_prefix=dict(seg='annotations/panoptic_val2017/'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='CocoPanopticMetric',
    ann_file=data_root + val_ann_file,
    seg_prefix=data_root + 'annotations/panoptic_val2017/',
)
test_evaluator = val_evaluator
