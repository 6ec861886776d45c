"""Photographed objects in COCO's layout, on a canvas of 256: `mmlape make-mini-data data/objects --objects`."""

_base_ = 'coco.py'

data_root = 'data/objects/coco/'
mini_data_options = '--objects'
crop_size = (256, 256)
classes = ('mammal', 'bird', 'fish', 'insect', 'fruit', 'vegetable', 'flower', 'instrument', 'tool', 'coin')
resize = dict(type='Resize', scale_factor=1.0)
train_pipeline = [_base_.load_image, _base_.load_masks, resize, _base_.pack]
boxes_pipeline = [_base_.load_image, _base_.load_boxes, resize, _base_.pack]
test_pipeline = [_base_.load_image, resize, _base_.load_masks, _base_.pack_test]
boxes_test_pipeline = [_base_.load_image, resize, _base_.load_boxes, _base_.pack_test]
dataset = dict(data_root=data_root, metainfo=dict(classes=classes))
train_dataloader = dict(
    batch_size=4, num_workers=2, dataset=dict(filter_cfg=dict(min_size=1), pipeline=train_pipeline, **dataset)
)
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=f'{data_root}{_base_.val_ann_file}', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
