"""COCO-Stuff 10k, 171 classes: short side 512 scaled by 0.5 to 2, then a crop of 512; two images per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/coco_stuff10k/'
crop_size = (512, 512)
scale = (2048, 512)
stride = (341, 341)  # of the windows in tests
num_classes = 171

crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded_reduced, dict(_base_.random_resize, scale=scale), crop, *_base_.augment]
resized = [_base_.load_image, dict(_base_.resize_test, scale=scale)]
test_pipeline = [*resized, _base_.stretch, _base_.load_reduced, _base_.pack]
dataset = dict(type='COCOStuffDataset', data_root=data_root, reduce_zero_label=True)
train_files = dict(data_prefix=dict(img_path='images/train2014', seg_map_path='annotations/train2014'))
val_files = dict(data_prefix=dict(img_path='images/test2014', seg_map_path='annotations/test2014'))
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline, **train_files, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **val_files, **dataset))
test_dataloader = val_dataloader
