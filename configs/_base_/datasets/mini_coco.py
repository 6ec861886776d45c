"""The mini data in COCO's layout: handwritten digits on photographs, at half their size."""

_base_ = './coco_instance.py'

data_root = 'data/mini/coco/'
crop_size = (128, 128)
classes = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')
dataset = dict(data_root=data_root, metainfo=dict(classes=classes))

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
    batch_size=4, num_workers=2, dataset=dict(filter_cfg=dict(min_size=1), pipeline=train_pipeline, **dataset)
)
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + _base_.val_ann_file)
test_evaluator = val_evaluator
