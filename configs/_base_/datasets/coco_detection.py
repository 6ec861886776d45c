"""COCO 2017 with boxes, DETR's pipeline: that of `coco_instance.py` without masks and the last crop."""

_base_ = './coco_instance.py'

crop_size = None
img_size = (800, _base_.longest_side)
boxes = dict(type='LoadAnnotations', with_bbox=True)
load, _, flip, resize, _, pack = _base_.train_pipeline
train_pipeline = [load, boxes, flip, resize, pack]
load, keep, _, pack = _base_.test_pipeline
test_pipeline = [load, keep, boxes, pack]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
