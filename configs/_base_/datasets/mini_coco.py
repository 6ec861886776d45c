"""The mini data in COCO's layout: handwritten digits on photographs, at half their size."""

_base_ = 'coco.py'

data_root = 'data/mini/coco/'
crop_size = (128, 128)
classes = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')

# no flips: a mirrored digit is no digit
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=crop_size, keep_ratio=True),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=crop_size, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=2,
    dataset=dict(
        data_root=data_root, metainfo=dict(classes=classes), filter_cfg=dict(min_size=1), pipeline=train_pipeline
    ),
)
val_dataloader = dict(
    num_workers=1, dataset=dict(data_root=data_root, metainfo=dict(classes=classes), pipeline=test_pipeline)
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=f'{data_root}{_base_.val_ann_file}', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
