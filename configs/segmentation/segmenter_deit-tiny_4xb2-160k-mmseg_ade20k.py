"""Seg-Ti-Mask/16, default PE, mmsegmentation's values. Expect 36.534 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/segmentation/segmenter_deit-tiny_4xb2-160k-mmseg_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
]
model = dict(
    decode_head=dict(drop_rate=0.0, attn_drop_rate=0.0, drop_path_rate=0.1, loss_decode=dict(avg_non_ignore=False)),
    test_cfg=dict(stride=(480, 480)),
)
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=1e-4, by_epoch=False, begin=0)]
