"""Mask2Former, ViT-Adapter-L, BEiT, 896 pixels. Expect 59.4 mIoU, 60.5 ms (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beit-large-adapter_16xb1-80k_ade20k.py 16
"""

_base_ = [
    '../_base_/models/mask2former_beit-adapter.py',
    '../_base_/datasets/ade20k_896.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
load_from = 'pretrained/mask2former_beit_adapter_large_896_80k_cocostuff164k.pth'
load_fresh = ['decode_head.cls_embed.']  # of other classes
crop_size = _base_.crop_size
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    backbone=dict(img_size=crop_size),
    decode_head=dict(num_queries=200),
    test_cfg=dict(crop_size=crop_size, stride=_base_.stride),
)
train_cfg = dict(max_iters=80000, val_interval=8000)
default_hooks = dict(checkpoint=dict(interval=8000))
