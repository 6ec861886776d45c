"""Sun397: 397 kinds of scenes, trained and tested on the first of its ten published partitions, 19,850 images each."""

_base_ = 'big_vision.py'

data_root = 'data/SUN397/'
num_classes = 397
load = dict(_base_.load_image, imdecode_backend='pillow')  # some files are no JPEGs, whatever their name says
before = [load, _base_.crop, _base_.flip]
magnitude_15 = [*before, dict(_base_.randaugment, magnitude_level=15), _base_.pack]
test_pipeline = [load, _base_.resize_test, dict(type='CenterCrop', crop_size=_base_.img_size), _base_.pack]
dataset = dict(type='SUN397', data_root=data_root)
train_dataloader = dict(
    batch_size=128,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(split='train', pipeline=[*before, _base_.pack], **dataset),
)
val_dataloader = dict(dataset=dict(split='test', pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
