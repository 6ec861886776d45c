"""Sun397: 397 kinds of scenes, trained and tested on the first of its ten published partitions, 19,850 images each.

The Dual PatchNorm paper does not say which split it has; TensorFlow Datasets' has 76,128 images to train.
`data_root` is the only path; it holds `SUN397/` and `Partitions/`.
"""

_base_ = './big_vision.py'

data_root = 'data/SUN397/'
num_classes = 397
load = dict(type='LoadImageFromFile', imdecode_backend='pillow')  # some files are no JPEGs, whatever their name says
train_pipeline = [load, *_base_.train_pipeline[1:3], _base_.train_pipeline[-1]]
test_pipeline = [load, *_base_.test_pipeline[1:]]
train_dataloader = dict(
    batch_size=128,
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
    dataset=dict(type='SUN397', data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(dataset=dict(type='SUN397', data_root=data_root, split='test', pipeline=test_pipeline))
test_dataloader = val_dataloader
