"""ADE20K, 150 classes, as DINOv2 trains its heads of several layers: sides of 640 to 1920, then a crop of 640."""

_base_ = 'segmentation.py'

data_root = 'data/ade/ADEChallengeData2016/'
crop_size = (640, 640)
scale = (2560, 640)

resize = dict(_base_.random_resize, scale=scale, ratio_range=(1.0, 3.0))
crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded_reduced, resize, crop, *_base_.augment]
test_pipeline = [_base_.load_image, dict(_base_.resize_test, scale=scale), _base_.load_reduced, _base_.pack]
dataset = dict(type='ADE20KDataset', data_root=data_root)
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline, **_base_.ade_train, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **_base_.ade_val, **dataset))
test_dataloader = val_dataloader
