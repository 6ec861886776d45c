"""Sun397: 397 kinds of scenes, trained and tested on the first of its ten published partitions, 19,850 images each.

The Dual PatchNorm paper does not say which split it has; TensorFlow Datasets' has 76,128 images to train.
`data_root` is the only path; it holds `SUN397/` and `Partitions/`. A config adds RandAugment between `before` and
`after`.
"""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/SUN397/'
num_classes = 397
img_size = 224
load = dict(type='LoadImageFromFile', imdecode_backend='pillow')  # some files are no JPEGs, whatever their name says
before = [
    load,
    dict(type='RandomResizedCrop', scale=img_size, crop_ratio_range=(0.05, 1.0), interpolation='bilinear'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
]
after = [dict(type='PackInputs')]
test_pipeline = [
    load,
    dict(type='ResizeEdge', scale=256, edge='short', interpolation='area'),
    dict(type='CenterCrop', crop_size=img_size),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=16,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='SUN397', data_root=data_root, split='train', pipeline=[*before, *after]),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='SUN397', data_root=data_root, split='test', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
