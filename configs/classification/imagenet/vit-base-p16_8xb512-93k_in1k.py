"""ViT-B/16 on ImageNet-1K, AugReg's recipe. Expect 80.4 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p16_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in1k.py'

# medium2
embed_dims = 768
model = dict(
    backbone=dict(arch='deit-base', pe_type=dict(std=embed_dims**-0.5), drop_rate=0.1, drop_path_rate=0.1),
    head=dict(in_channels=embed_dims, hidden_dim=embed_dims),
)
