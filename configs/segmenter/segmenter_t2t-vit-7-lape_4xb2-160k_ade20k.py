"""Segmenter (mask transformer) over T2T-ViT-7, LaPE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_t2t-vit-7-lape_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter_t2t_vit.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/t2t_vit_7_lape.pth')))
