"""T2T-ViT-7 on ImageNet-1K, default PE. Expect 71.69 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/t2t-vit-7_4xb256-310e_in1k.py 4
"""

_base_ = [
    '../../_base_/models/t2t_vit.py',
    '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/t2t_310e.py',
]
# timm's 'random' interpolation: each crop, and each of RandAugment's two operations, is bilinear or bicubic
load, crop, flip, augment, *rest = _base_.train_pipeline
both = ('bilinear', 'bicubic')
crops = dict(type='RandomChoice', transforms=[[dict(crop, interpolation=name)] for name in both])
augment.update(num_policies=1)
hparams = [dict(augment['hparams'], interpolation=name) for name in both]
operation = dict(type='RandomChoice', transforms=[[dict(augment, hparams=one)] for one in hparams])
# each image once an epoch, and tests at the crop ratio of the public code, 0.9
train_dataloader = dict(
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
    dataset=dict(pipeline=[load, crops, flip, operation, operation, *rest]),
)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=int(224 / 0.9), edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
custom_hooks = [
    dict(type='EMAHook', momentum=4e-5, update_buffers=True),
    dict(type='mmlape.SecondEvaluationHook', name='crop_1.0', changes=dict(ResizeEdge=dict(scale=224))),
]
