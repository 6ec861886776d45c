"""COCO 2017 with panoptic masks: DETR's multi-scale resizing; one image per GPU."""

_base_ = 'coco.py'

data_root = 'data/coco/'
train_ann_file = 'annotations/panoptic_train2017.json'
val_ann_file = 'annotations/panoptic_val2017.json'
crop_size = (1024, 1024)  # what costs are counted for; nothing is cropped

train_pipeline = [
    dict(type='LoadImageFromFile', to_float32=True),
    dict(type='LoadPanopticAnnotations', with_bbox=True, with_mask=True, with_seg=True),
    *_base_.resize_or_crop,
    _base_.pack,
]
test_pipeline = [_base_.load_image, _base_.resize_test, dict(type='LoadPanopticAnnotations'), _base_.pack_test]
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
