"""COCO 2017 with boxes, DETR's pipeline; as in its code, the longer side is not limited before the random crop."""

_base_ = 'coco.py'

img_size = (800, 1333)
unlimited = dict(_base_.resize_before, scales=[(side, 10**6) for side in (400, 500, 600)])
cropped = [unlimited, _base_.crop_before, _base_.choose_scale]
train_pipeline = [
    _base_.load_image,
    _base_.load_boxes,
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomChoice', transforms=[[_base_.choose_scale], cropped]),
    _base_.pack,
]
test_pipeline = [_base_.load_image, _base_.resize_test, _base_.load_boxes, _base_.pack_test]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
