"""ViT-B/32 on Sun397. Expect 41.4 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/vit/vit-base-p32_4xb128-300e_sun397.py 4
"""

_base_ = [
    '../_base_/models/vit-base_big_vision.py',
    '../_base_/datasets/sun397.py',
    '../_base_/schedules/sun397_300e.py',
    '../_base_/default_runtime.py',
]
num_classes = _base_.num_classes
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(patch_size=32, drop_rate=0.1, drop_path_rate=0.1),
    head=dict(num_classes=num_classes, init_cfg=dict(bias=-6.0)),
)
