"""A set of VTAB-1k by its published lists, named by the config: trained on 800 images, validated on 200."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

img_size = 224
pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(img_size, img_size)), dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=512,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(type='CustomDataset', ann_file='train800.txt', pipeline=pipeline),
)
val_dataloader = dict(
    batch_size=200,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='CustomDataset', ann_file='val200.txt', pipeline=pipeline),
)
test_dataloader = dict(
    batch_size=200,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='CustomDataset', ann_file='test.txt', pipeline=pipeline),
)
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
