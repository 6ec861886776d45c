"""The mini data for classification: single handwritten digits, one folder per class; no flips."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/mini/digits/'
num_classes = 10
img_size = 64

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(img_size, img_size)),
    dict(type='PackInputs'),
]
test_pipeline = train_pipeline
train_dataloader = dict(
    batch_size=32,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='CustomDataset', data_root=data_root, data_prefix='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='CustomDataset', data_root=data_root, data_prefix='val', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
