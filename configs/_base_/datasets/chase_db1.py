"""CHASE_DB1, background and vessels: 960 x 999 scaled by 0.5 to 2, then a crop of 128; four images per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/CHASE_DB1/'
crop_size = (128, 128)
scale = (960, 999)
stride = (85, 85)  # of the windows in tests
num_classes = 2

crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded, dict(_base_.random_resize, scale=scale), crop, *_base_.augment]
resized = [_base_.load_image, dict(_base_.resize_test, scale=scale)]
test_pipeline = [*resized, _base_.stretch, _base_.load_labels, _base_.pack]
dataset = dict(type='ChaseDB1Dataset', data_root=data_root)
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline, **_base_.ade_train, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **_base_.ade_val, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(iou_metrics=['mIoU', 'mDice'])
test_evaluator = val_evaluator
