"""COCO's captions by Karpathy's splits; retrieval on 5,000 images, and zero-shot accuracy on ImageNet-1K as the test.

`data_root` is the only path; it holds `coco/` (`train2014/`, `val2014/`, and in `annotations/` the lists
`coco_karpathy_train.json` and `coco_karpathy_test.json`, as mmpretrain reads them) and `imagenet/`. BERT's vocabulary
is `coco/annotations/bert-uncased.txt`. A config adds RandAugment between `before` and `after`.
"""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

data_root = 'data/'
coco = dict(type='mmlape.CaptionDataset', data_root=f'{data_root}coco/')
img_size = 224
resize = dict(type='Resize', scale=(img_size, img_size), interpolation='bilinear')
resized = [dict(type='mmlape.LoadImageFromFile'), resize]
before = [*resized, dict(type='RandomFlip', prob=0.5, direction='horizontal')]
after = [dict(type='mmlape.RandomCaption'), dict(type='PackInputs', algorithm_keys=['gt_caption'])]
train_dataloader = dict(
    batch_size=512,
    num_workers=16,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(ann_file='annotations/coco_karpathy_train.json', pipeline=[*before, *after], **coco),
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(ann_file='annotations/coco_karpathy_test.json', pipeline=[*resized, after[-1]], **coco),
)
val_evaluator = dict(type='mmlape.CaptionRecall')
imagenet_pipeline = [*resized, dict(type='PackInputs')]
test_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='ImageNet', data_root=f'{data_root}imagenet/', split='val', pipeline=imagenet_pipeline),
)
test_evaluator = dict(type='Accuracy', topk=(1, 5))
