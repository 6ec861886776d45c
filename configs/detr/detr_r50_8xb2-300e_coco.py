"""DETR-R50, sine PE, 300 epochs. Expect 40.6 box AP (the iRPE paper's); not run by us.

tools/dist_train.sh configs/detr/detr_r50_8xb2-300e_coco.py 8
"""

_base_ = [
    '../_base_/models/detr_r50.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/detr_150e.py',
    '../_base_/default_runtime.py',
]
train_cfg = dict(max_epochs=300)
param_scheduler = [dict(type='MultiStepLR', milestones=[200], gamma=0.1, by_epoch=True)]
