"""DETR-R50, sine PE and iRPE biases, 150 epochs. Expect 40.6 box AP (the iRPE paper's); not run by us.

tools/dist_train.sh configs/detection/detr_r50-irpe-product-bias-k-9x9_8xb2-150e_coco.py 8
"""

_base_ = [
    '../_base_/models/detr_r50.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/detr_150e.py',
]
model = dict(pe_type=['sine', dict(type='irpe', mode='bias', ratio=2.0)])
