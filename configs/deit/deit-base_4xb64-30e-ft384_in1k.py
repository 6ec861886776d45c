"""DeiT-B fine-tuned at 384 pixels from 224, default PE: the PE is resized from 14x14 to 24x24; not run by us.

tools/dist_train.sh configs/deit/deit-base_4xb64-30e-ft384_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet_384.py',
    '../_base_/schedules/deit_ft30e.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        arch='deit-base',
        img_size=_base_.img_size,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_base_patch16_224-b5f2ef4d.pth'),
    ),
    head=dict(in_channels=768),
)
