"""LiT over our ViT-B/32 of ImageNet-21k, big_vision's COCO recipe; the papers give no figure.

tools/dist_train.sh configs/lit/lit_vit-base-p32_8xb512-5k_coco-captions.py 8
"""

_base_ = [
    '../_base_/models/lit_big_vision.py',
    '../_base_/datasets/coco_captions.py',
    '../_base_/schedules/lit_5k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        patch_size=32,
        with_cls_token=False,
        out_type='avg_featmap',
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/vit-base-p32_8xb512-93k_in21k/iter_93000.pth'),
    )
)
