"""COCO 2017 with instance masks: DETR's multi-scale resizing, then a crop of 1024; two images per GPU."""

_base_ = 'coco.py'

crop_size = (1024, 1024)
resized = [_base_.load_image, _base_.load_masks, *_base_.resize_or_crop]
last_crop = dict(type='RandomCrop', crop_type='absolute_range', crop_size=crop_size, allow_negative_crop=True)
train_pipeline = [*resized, last_crop, _base_.pack]
uncropped_pipeline = [*resized, _base_.pack]  # Swin's public recipe has no last crop
test_pipeline = [_base_.load_image, _base_.resize_test, _base_.load_masks, _base_.pack_test]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator
