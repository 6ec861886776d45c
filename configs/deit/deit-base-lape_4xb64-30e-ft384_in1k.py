"""DeiT-B fine-tuned at 384 pixels from 224, LaPE: the PE is resized from 14x14 to 24x24; not run by us.

tools/dist_train.sh configs/deit/deit-base-lape_4xb64-30e-ft384_in1k.py 4
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
        pe_joining='lape',
        img_size=_base_.img_size,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_base_lape.pth'),
    ),
    head=dict(in_channels=768),
)
