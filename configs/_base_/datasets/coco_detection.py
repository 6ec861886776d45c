"""COCO 2017 with boxes, DETR's pipeline: that of `coco_instance.py` without masks and the last crop.

As in DETR's code, the longer side is not limited before the random crop.
"""

_base_ = './coco_instance.py'

crop_size = None
img_size = (800, _base_.longest_side)
boxes = dict(type='LoadAnnotations', with_bbox=True)
load, _, flip, choice, _, pack = _base_.train_pipeline
choice['transforms'][1][0].update(scales=[(side, 10**6) for side in (400, 500, 600)])
train_pipeline = [load, boxes, flip, choice, pack]
test_pipeline = [*_base_.test_pipeline[:2], boxes, _base_.test_pipeline[-1]]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
