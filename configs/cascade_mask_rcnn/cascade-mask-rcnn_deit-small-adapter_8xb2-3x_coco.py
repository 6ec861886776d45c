"""Cascade Mask R-CNN, ViT-Adapter-S, default PE. Expect 51.5 box / 44.3 mask AP (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/cascade_mask_rcnn/cascade-mask-rcnn_deit-small-adapter_8xb2-3x_coco.py 8
"""

_base_ = [
    '../_base_/models/cascade_mask_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
auto_scale_lr = dict(base_batch_size=16)
