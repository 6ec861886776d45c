"""DINOv2's head on the last four layers of ViT-S/14, frozen. Expect 47.2 mIoU; not run by us.

The figure is the model card's, with several scales and flips; this config tests one scale.

tools/dist_train.sh configs/linear/linear_vits14-dinov2-ms_8xb2-40k_ade20k.py 8
"""

_base_ = [
    '../_base_/models/linear_dinov2.py',
    '../_base_/datasets/ade20k_640_dinov2.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/default_runtime.py',
]
crop_size = _base_.crop_size
model = dict(
    data_preprocessor=dict(size=crop_size),
    test_cfg=dict(crop_size=crop_size, stride=(320, 320)),
    backbone=dict(out_indices=[-4, -3, -2, -1]),
    decode_head=dict(in_channels=[384] * 4),
)
