"""DETR-R50 without a PE of the image, 150 epochs. Expect 30.4 box AP (the iRPE paper's); not run by us.

tools/dist_train.sh configs/detection/detr_r50-none_8xb2-150e_coco.py 8
"""

_base_ = [
    '../_base_/models/detr_r50.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/detr_150e.py',
]
model = dict(pe_type='none')
