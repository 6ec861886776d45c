"""Seg-Ti-Mask/16, default PE. Expect 36.534 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/segmenter/segmenter_deit-tiny_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
