"""ViT-B/32 on Sun397. Expect 41.4 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/sun397/vit-base-p32_4xb128-300e_sun397.py 4
"""

_base_ = [
    '../../_base_/models/vit_big_vision.py',
    '../../_base_/datasets/sun397.py',
    '../../_base_/schedules/sun397_300e.py',
]

# no augmentation but crops and flips; dropout 0.1 and stochastic depth 0.1 as for ImageNet-1K are our choice
embed_dims = 768
num_classes = _base_.num_classes
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(
        arch='deit-base',
        patch_size=32,
        pe_type=dict(std=embed_dims**-0.5),
        drop_rate=0.1,
        drop_path_rate=0.1,
    ),
    head=dict(num_classes=num_classes, in_channels=embed_dims, hidden_dim=embed_dims, init_cfg=dict(bias=-6.0)),
)
