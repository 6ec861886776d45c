"""LiT over AugReg's ViT-B/16, big_vision's COCO recipe with a text tower from scratch; not run by us.

tools/dist_train.sh configs/lit/lit_vit-base-p16_8xb512-5k_coco-captions.py 8
"""

_base_ = [
    '../_base_/models/lit_big_vision.py',
    '../_base_/datasets/coco_captions.py',
    '../_base_/schedules/lit_5k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        with_prefix_pe=True,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz'
        ),
    )
)
