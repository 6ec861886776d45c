"""Plain-DETR as DINOv3 has it, with frozen DINOv3-S: not run by us, no paper's figure.

tools/dist_train.sh configs/plain_detr/plain-detr_dinov3-small_8xb2-12e_coco.py 8
"""

_base_ = [
    '../_base_/models/plain_detr_dinov3.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/plain_detr_12e.py',
    '../_base_/default_runtime.py',
]
name = 'vit_small_patch16_dinov3.lvd1689m'
model = dict(backbone=dict(model_name=name, init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')))
