"""COCO's captions by Karpathy's splits; retrieval on 5,000 images, and zero-shot accuracy on ImageNet-1K as the test.

BERT's vocabulary is `coco/annotations/bert-uncased.txt`.
"""

_base_ = 'big_vision.py'

data_root = 'data/'
coco = dict(type='mmlape.CaptionDataset', data_root=f'{data_root}coco/')
resize = dict(type='Resize', scale=(_base_.img_size, _base_.img_size), interpolation='bilinear')
resized = [dict(type='mmlape.LoadImageFromFile'), resize]
pack_caption = dict(type='PackInputs', algorithm_keys=['gt_caption'])
train_pipeline = [
    *resized,
    _base_.flip,
    dict(_base_.randaugment, magnitude_level=10),
    dict(type='mmlape.RandomCaption'),
    pack_caption,
]
train_dataloader = dict(dataset=dict(ann_file='annotations/coco_karpathy_train.json', pipeline=train_pipeline, **coco))
val_dataloader = dict(
    dataset=dict(ann_file='annotations/coco_karpathy_test.json', pipeline=[*resized, pack_caption], **coco)
)
val_evaluator = dict(type='mmlape.CaptionRecall')
imagenet_pipeline = [*resized, _base_.pack]
test_dataloader = dict(
    dataset=dict(type='ImageNet', data_root=f'{data_root}imagenet/', split='val', pipeline=imagenet_pipeline)
)
test_evaluator = dict(type='Accuracy', topk=(1, 5))
