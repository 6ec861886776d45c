"""ImageNet-21k, evaluated by 25-shot accuracy on ImageNet-1K: 25 training images of each class, three seeds.

`data_root` is the only path; it holds `imagenet21k/` (`train/`, and `meta/train.txt` if there is a list) and
`imagenet/` (`train/`, `val/`). There are 21,843 classes, as in big_vision; `--cfg-options data_root=DIR/` takes the
number of another release from its folders.
"""

_base_ = './big_vision.py'

data_root = 'data/'
num_classes = 21_843
train_dataloader = dict(dataset=dict(type='ImageNet21k', data_root=f'{data_root}imagenet21k/', split='train'))
few_shot_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(256, 256), interpolation='bilinear'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
imagenet = dict(type='ImageNet', data_root=f'{data_root}imagenet/', pipeline=few_shot_pipeline)
val_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='mmlape.FewShotDataset',
        datasets=[dict(split='train', **imagenet), dict(split='val', **imagenet)],
        shots=(1, 5, 10, 25),
        seeds=3,
    )
)
test_dataloader = val_dataloader
val_evaluator = dict(_delete_=True, type='mmlape.FewShotMetric', l2=2.0**10)
test_evaluator = val_evaluator
