"""Segmenter with DINOv2-S, registers, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_dinov2-small_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
