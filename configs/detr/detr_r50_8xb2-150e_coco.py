"""DETR-R50, sine PE, 150 epochs. Expect 39.5 box AP (the iRPE paper's); not run by us.

tools/dist_train.sh configs/detr/detr_r50_8xb2-150e_coco.py 8
"""

_base_ = [
    '../_base_/models/detr_r50.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/detr_150e.py',
    '../_base_/default_runtime.py',
]
