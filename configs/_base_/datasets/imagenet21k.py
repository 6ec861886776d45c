"""ImageNet-21k, evaluated by 25-shot accuracy on ImageNet-1K: 25 training images of each class, three seeds.

`data_root` is the only path; it holds `imagenet21k/` (`train/`, and `meta/train.txt` if there is a list) and
`imagenet/` (`train/`, `val/`). There are 21,843 classes, as in big_vision; `--cfg-options data_root=DIR/` takes the
number of another release from its folders. A config adds RandAugment between `before` and `after`.
"""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/'
num_classes = 21_843
img_size = 224
before = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=img_size, crop_ratio_range=(0.05, 1.0), interpolation='bilinear'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
]
after = [dict(type='PackInputs')]
few_shot_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(256, 256), interpolation='bilinear'),
    dict(type='CenterCrop', crop_size=img_size),
    dict(type='PackInputs'),
]
imagenet = dict(type='ImageNet', data_root=f'{data_root}imagenet/', pipeline=few_shot_pipeline)
train_dataloader = dict(
    batch_size=512,
    num_workers=16,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(type='ImageNet21k', data_root=f'{data_root}imagenet21k/', split='train', pipeline=[*before, *after]),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmlape.FewShotDataset',
        datasets=[dict(split='train', **imagenet), dict(split='val', **imagenet)],
        shots=(1, 5, 10, 25),
        seeds=3,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmlape.FewShotMetric', l2=2.0**10)
test_evaluator = val_evaluator
