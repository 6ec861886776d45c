"""Faster R-CNN, ViT-Adapter-S, default PE: not run by us, no paper's figure.

tools/dist_train.sh configs/faster_rcnn/faster-rcnn_deit-small-adapter_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/faster_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
