"""Plain-DETR as DINOv3 has it, with frozen DINOv3-L: not run by us, no paper's figure.

tools/dist_train.sh configs/plain_detr/plain-detr_dinov3-large_8xb2-12e_coco.py 8
"""

_base_ = [
    '../_base_/models/plain_detr_dinov3.py',
    '../_base_/datasets/coco_detection.py',
    '../_base_/schedules/plain_detr_12e.py',
    '../_base_/default_runtime.py',
]
name = 'vit_large_patch16_dinov3.lvd1689m'
model = dict(
    backbone=dict(model_name=name, out_indices=[5, 11, 17, 23], init_cfg=dict(checkpoint=f'hf-hub:timm/{name}'))
)
