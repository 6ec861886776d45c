"""T2T-ViT-7 on ImageNet-1K, default PE. Expect 71.69 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/pretrain/t2t/t2t-vit-7-default_4xb256-310e_in1k.py 4
"""

_base_ = [
    '../../_base_/models/t2t_vit.py',
    '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/t2t_310e.py',
]
# each image once an epoch, and tests at the crop ratio of the public code, 0.9
train_dataloader = dict(sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True))
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
