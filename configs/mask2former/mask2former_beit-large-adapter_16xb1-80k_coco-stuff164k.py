"""Mask2Former, ViT-Adapter-L, BEiT. Expect 51.7 mIoU, 52.0 ms (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beit-large-adapter_16xb1-80k_coco-stuff164k.py 16
"""

_base_ = [
    '../_base_/models/mask2former_beit-adapter.py',
    '../_base_/datasets/coco_stuff164k_896.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
crop_size = _base_.crop_size
num_classes = _base_.num_classes
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    backbone=dict(img_size=crop_size),
    decode_head=dict(
        num_queries=200, num_classes=num_classes, loss_cls=dict(class_weight=[1.0] * num_classes + [0.1])
    ),
    test_cfg=dict(crop_size=crop_size, stride=_base_.stride),
)
train_cfg = dict(max_iters=80000, val_interval=8000)
default_hooks = dict(checkpoint=dict(interval=8000))
