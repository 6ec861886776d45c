"""Plain-DETR with MAE-B, fine-tuned: not run by us, no paper's figure.

tools/dist_train.sh configs/plain_detr/plain-detr_mae-base_8xb2-12e_coco.py 8
"""

_base_ = [
    '../_base_/models/plain_detr.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/plain_detr_12e.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)
