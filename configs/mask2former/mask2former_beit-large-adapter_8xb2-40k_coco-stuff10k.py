"""Mask2Former, ViT-Adapter-L, BEiT. Expect 53.2 mIoU, 54.2 ms (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beit-large-adapter_8xb2-40k_coco-stuff10k.py 8
"""

_base_ = [
    '../_base_/models/mask2former_beit-adapter.py',
    '../_base_/datasets/coco_stuff10k.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
crop_size = _base_.crop_size
num_classes = _base_.num_classes
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    backbone=dict(img_size=crop_size),
    decode_head=dict(num_classes=num_classes, loss_cls=dict(class_weight=[1.0] * num_classes + [0.1])),
    test_cfg=dict(crop_size=crop_size, stride=_base_.stride),
)
train_cfg = dict(max_iters=40000, val_interval=4000)
default_hooks = dict(checkpoint=dict(interval=4000))
