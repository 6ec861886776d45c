"""The mini data in COCO's layout: handwritten digits on photographs, at half their size."""

_base_ = 'coco.py'

data_root = 'data/mini/coco/'
crop_size = (128, 128)
classes = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')

# no flips: a mirrored digit is no digit
resize = dict(type='Resize', scale=crop_size, keep_ratio=True)
train_pipeline = [_base_.load_image, _base_.load_masks, resize, _base_.pack]
test_pipeline = [_base_.load_image, resize, _base_.load_masks, _base_.pack_test]
dataset = dict(data_root=data_root, metainfo=dict(classes=classes))
train_dataloader = dict(
    batch_size=4, num_workers=2, dataset=dict(filter_cfg=dict(min_size=1), pipeline=train_pipeline, **dataset)
)
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=f'{data_root}{_base_.val_ann_file}', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
