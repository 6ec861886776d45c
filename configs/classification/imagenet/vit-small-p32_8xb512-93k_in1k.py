"""ViT-S/32 on ImageNet-1K, AugReg's recipe. Expect 72.1 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p32_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in1k.py'

# medium1, and no tanh layer
model = dict(
    backbone=dict(patch_size=32),
    head=dict(hidden_dim=None),
    train_cfg=dict(augments=[dict(type='mmlape.RolledMixup', alpha=0.2)]),
)
