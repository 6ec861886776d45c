"""ImageNet-21k, evaluated by 25-shot accuracy on ImageNet-1K: 25 training images of each class, three seeds.

There are 21,843 classes, as in big_vision; `--cfg-options data_root=DIR/` takes the number of another release.
"""

_base_ = 'big_vision.py'

data_root = 'data/'
num_classes = 21_843
before = [_base_.load_image, _base_.crop, _base_.flip]
magnitude_0 = [*before, dict(_base_.randaugment, magnitude_level=0), _base_.pack]
magnitude_10 = [*before, dict(_base_.randaugment, magnitude_level=10), _base_.pack]
few_shot_pipeline = [
    _base_.load_image,
    dict(type='Resize', scale=(256, 256), interpolation='bilinear'),
    dict(type='CenterCrop', crop_size=_base_.img_size),
    _base_.pack,
]
imagenet = dict(type='ImageNet', data_root=f'{data_root}imagenet/', pipeline=few_shot_pipeline)
train_dataloader = dict(
    dataset=dict(
        type='ImageNet21k', data_root=f'{data_root}imagenet21k/', split='train', pipeline=[*before, _base_.pack]
    )
)
val_dataloader = dict(
    dataset=dict(
        type='mmlape.FewShotDataset',
        datasets=[dict(split='train', **imagenet), dict(split='val', **imagenet)],
        shots=(1, 5, 10, 25),
        seeds=3,
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmlape.FewShotMetric', l2=2.0**10)
test_evaluator = val_evaluator
