"""Segmenter (mask transformer) over CeiT-Ti, LaPE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_ceit-tiny-lape_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter_ceit.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/ceit_tiny_lape.pth')))
