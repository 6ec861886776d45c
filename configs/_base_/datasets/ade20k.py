"""ADE20K, 150 classes: short side 512 scaled by 0.5 to 2, then a crop of 512; two images per GPU."""

_base_ = 'segmentation.py'

data_root = 'data/ade/ADEChallengeData2016/'
crop_size = (512, 512)
scale = (2048, 512)

crop = dict(_base_.random_crop, crop_size=crop_size)
train_pipeline = [*_base_.loaded_reduced, dict(_base_.random_resize, scale=scale), crop, *_base_.augment]
resized = [_base_.load_image, dict(_base_.resize_test, scale=scale)]
test_pipeline = [*resized, _base_.load_reduced, _base_.pack]
# of ViT-Adapter's public recipes
stretched_pipeline = [*resized, _base_.stretch, _base_.load_reduced, _base_.pack]
dataset = dict(type='ADE20KDataset', data_root=data_root)
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline, **_base_.ade_train, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **_base_.ade_val, **dataset))
test_dataloader = val_dataloader
