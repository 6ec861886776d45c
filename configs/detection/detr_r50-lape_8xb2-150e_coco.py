"""DETR-R50, sine PE joined by LaPE, our extension, 150 epochs; not run by us, no paper's figure.

tools/dist_train.sh configs/detection/detr_r50-lape_8xb2-150e_coco.py 8
"""

_base_ = './detr_r50_8xb2-150e_coco.py'

model = dict(pe_joining='lape')
