"""ViT-S/16 on ImageNet-21k, 93k steps. Expect 64.3 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/vit/vit-small-p16_8xb512-93k_in21k.py 8
"""

_base_ = [
    '../_base_/models/vit_big_vision.py',
    '../_base_/datasets/imagenet21k.py',
    '../_base_/schedules/big_vision_93k.py',
    '../_base_/default_runtime.py',
]
num_classes = _base_.num_classes
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(with_cls_token=False, out_type='avg_featmap'),
    head=dict(num_classes=num_classes, hidden_dim=None, init_cfg=dict(bias=-10.0)),
)
train_dataloader = dict(dataset=dict(pipeline=_base_.magnitude_0))
train_cfg = dict(val_interval=31_000)
