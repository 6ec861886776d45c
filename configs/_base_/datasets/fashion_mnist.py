"""Fashion-MNIST, grey images of 28x28 pixels, from the gzipped files of Debian's package `dataset-fashion-mnist`."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = '/usr/share/datasets/fashion-mnist/'
dataset_type = 'mmlape.GzippedFashionMNIST'
num_classes = 10
img_size = 28

train_pipeline = [dict(type='RandomFlip', prob=0.5, direction='horizontal'), dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=128,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=250,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=[dict(type='PackInputs')]),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
