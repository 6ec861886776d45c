"""Cityscapes, 19 classes: short side 1024 scaled by 0.5 to 2, then a crop of 896; one image per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/cityscapes/'
crop_size = (896, 896)
scale = (2048, 1024)
stride = (512, 512)  # of the windows in tests
num_classes = 19

crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded, dict(_base_.random_resize, scale=scale), crop, *_base_.augment]
test_pipeline = [_base_.load_image, dict(_base_.resize_test, scale=scale), _base_.load_labels, _base_.pack]
dataset = dict(type='CityscapesDataset', data_root=data_root)
train_files = dict(data_prefix=dict(img_path='leftImg8bit/train', seg_map_path='gtFine/train'))
val_files = dict(data_prefix=dict(img_path='leftImg8bit/val', seg_map_path='gtFine/val'))
train_dataloader = dict(batch_size=1, dataset=dict(pipeline=train_pipeline, **train_files, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **val_files, **dataset))
test_dataloader = val_dataloader
