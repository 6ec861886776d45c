"""Segmenter with AugReg-B, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_augreg-base_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
name = 'vit_base_patch16_224.augreg_in21k'
init = dict(type='Pretrained', checkpoint=f'hf-hub:timm/{name}')
model = dict(
    data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3),
    backbone=dict(_delete_=True, **_base_.timm, model_name=name, init_cfg=init),
    decode_head=_base_.widths[768],
)
