"""CIFAR-10 at its own 32 pixels with padded crops and flips, for pretraining in hours instead of days."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/cifar10/'
dataset_type = 'CIFAR10'
num_classes = 10
img_size = 32

train_pipeline = [
    dict(type='RandomCrop', crop_size=img_size, padding=4),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=[dict(type='PackInputs')]),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
