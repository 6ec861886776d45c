"""Segmenter with EVA-02-S, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_eva02-small_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
name = 'eva02_small_patch14_224.mim_in22k'
init = dict(type='Pretrained', checkpoint=f'hf-hub:timm/{name}')
model = dict(
    data_preprocessor=dict(mean=[122.7709, 116.746, 104.0937], std=[68.5005, 66.6322, 70.3232]),
    backbone=dict(_delete_=True, **_base_.timm, model_name=name, init_cfg=init),
    decode_head=_base_.widths[384],
)
