"""ImageNet-1K as big_vision has it: 99 % of the training images, the validation images for the score.

The last percent is where the Dual PatchNorm paper chose its recipe; 93,000 steps of 4096 are 300 epochs of the others.
`data_root` is the only path; it holds `train` and `val`. Inception crops of 224 and flips; a config adds RandAugment
between `before` and `after`. TensorFlow's bilinear resize has no antialiasing, as OpenCV's.
"""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/imagenet/'
data_fraction = 0.99
img_size = 224
load = dict(type='LoadImageFromFile')
pack = dict(type='PackInputs')
crop = dict(type='RandomResizedCrop', crop_ratio_range=(0.05, 1.0), interpolation='bilinear')
flip = dict(type='RandomFlip', prob=0.5, direction='horizontal')
shorter = dict(type='ResizeEdge', edge='short', interpolation='area')
before, after = [load, dict(crop, scale=img_size), flip], [pack]
test_pipeline = [load, dict(shorter, scale=256), dict(type='CenterCrop', crop_size=img_size), pack]
# fine-tuning: no RandAugment
train_384 = [load, dict(crop, scale=384), flip, pack]
test_384 = [load, dict(shorter, scale=418), dict(type='CenterCrop', crop_size=384), pack]
train_dataloader = dict(
    batch_size=512,
    num_workers=16,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(type='ImageNet', data_root=data_root, split='train', pipeline=[*before, *after]),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='ImageNet', data_root=data_root, split='val', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
