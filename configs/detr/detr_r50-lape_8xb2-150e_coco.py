"""DETR-R50, sine PE joined by LaPE, our extension, 150 epochs; not run by us, no paper's figure.

tools/dist_train.sh configs/detr/detr_r50-lape_8xb2-150e_coco.py 8
"""

_base_ = [
    '../_base_/models/detr_r50.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/detr_150e.py',
    '../_base_/default_runtime.py',
]
model = dict(pe_joining='lape')
