"""Segmenter (mask transformer) over CeiT-S, default PE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_ceit-small_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
init = dict(type='Pretrained', checkpoint='pretrained/ceit_small_patch16_224.pth')
model = dict(
    backbone=dict(_delete_=True, **_base_.ceit, arch='small', init_cfg=init),
    decode_head=_base_.widths[384],
)
