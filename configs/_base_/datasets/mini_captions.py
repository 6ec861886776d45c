"""Captions of the mini data's scenes, for retrieval; single digits, for zero-shot accuracy, are the test."""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/mini/'
load = dict(type='mmlape.LoadImageFromFile')
img_size = 128
half = dict(type='Resize', scale=(img_size, img_size))
pack = dict(type='PackInputs', algorithm_keys=['gt_caption'])
scenes = dict(type='mmlape.CaptionDataset', data_root=f'{data_root}coco/')
train_dataloader = dict(
    batch_size=64,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        ann_file='annotations/captions_train2017.json',
        data_prefix=dict(img_path='train2017'),
        pipeline=[load, half, dict(type='mmlape.RandomCaption'), pack],
        **scenes,
    ),
)
val_dataloader = dict(
    batch_size=50,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        ann_file='annotations/captions_val2017.json',
        data_prefix=dict(img_path='val2017'),
        pipeline=[load, half, pack],
        **scenes,
    ),
)
val_evaluator = dict(type='mmlape.CaptionRecall')
test_dataloader = dict(
    batch_size=100,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CustomDataset',
        data_root=f'{data_root}digits/',
        data_prefix='val',
        pipeline=[load, dict(type='Resize', scale=(64, 64)), dict(type='PackInputs')],
    ),
)
test_evaluator = dict(type='Accuracy', topk=(1,))
