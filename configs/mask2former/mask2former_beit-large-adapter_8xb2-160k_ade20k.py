"""Mask2Former, ViT-Adapter-L, BEiT, 640 pixels. Expect 58.3 mIoU, 59.0 ms (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beit-large-adapter_8xb2-160k_ade20k.py 8
"""

_base_ = [
    '../_base_/models/mask2former_beit-adapter.py',
    '../_base_/datasets/ade20k_640.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
crop_size = _base_.crop_size
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    backbone=dict(img_size=crop_size),
    test_cfg=dict(crop_size=crop_size, stride=_base_.stride),
)
