"""ImageNet-1K as big_vision has it: 99 % of the training images, the validation images for the score."""

_base_ = 'big_vision.py'

data_root = 'data/imagenet/'
data_fraction = 0.99
before = [_base_.load_image, _base_.crop, _base_.flip]
magnitude_0 = [*before, dict(_base_.randaugment, magnitude_level=0), _base_.pack]
magnitude_10 = [*before, dict(_base_.randaugment, magnitude_level=10), _base_.pack]
magnitude_15 = [*before, dict(_base_.randaugment, magnitude_level=15), _base_.pack]
test_pipeline = [
    _base_.load_image,
    _base_.resize_test,
    dict(type='CenterCrop', crop_size=_base_.img_size),
    _base_.pack,
]
# fine-tuning: no RandAugment
train_384 = [_base_.load_image, dict(_base_.crop, scale=384), _base_.flip, _base_.pack]
test_384 = [
    _base_.load_image,
    dict(_base_.resize_test, scale=418),
    dict(type='CenterCrop', crop_size=384),
    _base_.pack,
]
dataset = dict(type='ImageNet', data_root=data_root)
train_dataloader = dict(dataset=dict(split='train', pipeline=[*before, _base_.pack], **dataset))
val_dataloader = dict(dataset=dict(split='val', pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
