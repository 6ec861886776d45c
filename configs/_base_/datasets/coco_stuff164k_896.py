"""COCO-Stuff 164k, 171 classes: short side 896 scaled by 0.5 to 2, then a crop of 896; one image per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/coco_stuff164k/'
crop_size = (896, 896)
scale = (3584, 896)
stride = (512, 512)  # of the windows in tests
num_classes = 171

crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded, dict(_base_.random_resize, scale=scale), crop, *_base_.augment]
resized = [_base_.load_image, dict(_base_.resize_test, scale=scale)]
test_pipeline = [*resized, _base_.stretch, _base_.load_labels, _base_.pack]
dataset = dict(type='COCOStuffDataset', data_root=data_root)
train_files = dict(data_prefix=dict(img_path='images/train2017', seg_map_path='annotations/train2017'))
val_files = dict(data_prefix=dict(img_path='images/val2017', seg_map_path='annotations/val2017'))
train_dataloader = dict(batch_size=1, dataset=dict(pipeline=train_pipeline, **train_files, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **val_files, **dataset))
test_dataloader = val_dataloader
