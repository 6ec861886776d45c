"""Mask2Former, ViT-Adapter-L, BEiT. Expect 84.9 mIoU, 85.8 ms (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beit-large-adapter_16xb1-80k_cityscapes.py 16
"""

_base_ = [
    '../_base_/models/mask2former_beit-adapter.py',
    '../_base_/datasets/cityscapes_896.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
load_from = 'pretrained/mask2former_beit_adapter_large_896_80k_mapillary.pth'
load_fresh = ['decode_head.cls_embed.']  # of other classes
crop_size = _base_.crop_size
num_classes = _base_.num_classes
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    backbone=dict(img_size=crop_size),
    decode_head=dict(
        num_queries=100, num_classes=num_classes, loss_cls=dict(class_weight=[1.0] * num_classes + [0.1])
    ),
    test_cfg=dict(crop_size=crop_size, stride=_base_.stride),
)
train_cfg = dict(max_iters=80000, val_interval=1000)
default_hooks = dict(checkpoint=dict(interval=8000))
