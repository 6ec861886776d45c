"""Mask R-CNN, ViT-Adapter-Ti, default PE. Expect 45.6 box / 40.7 mask AP (the paper, five seeds); not run by us.

tools/dist_train.sh configs/mask_rcnn/mask-rcnn_deit-tiny-adapter_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
