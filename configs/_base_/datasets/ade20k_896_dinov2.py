"""ADE20K, 150 classes: short side 896 scaled by 0.5 to 2, then a crop of 896; one image per GPU.

In tests sides stay as they are.
"""

_base_ = 'segmentation.py'

data_root = 'data/ade/ADEChallengeData2016/'
crop_size = (896, 896)
scale = (3584, 896)

train_pipeline = [
    _base_.load_image,
    _base_.load_reduced,
    dict(type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    *_base_.augment,
]
test_pipeline = [
    _base_.load_image,
    dict(type='Resize', scale=scale, keep_ratio=True),
    _base_.load_reduced,
    _base_.pack,
]
dataset = dict(type='ADE20KDataset', data_root=data_root)
train_dataloader = dict(batch_size=1, dataset=dict(pipeline=train_pipeline, **_base_.ade_train, **dataset))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **_base_.ade_val, **dataset))
test_dataloader = val_dataloader
