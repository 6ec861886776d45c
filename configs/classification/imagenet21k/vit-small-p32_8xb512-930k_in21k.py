"""ViT-S/32 on ImageNet-21k, 930k steps. Expect 63.8 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet21k/vit-small-p32_8xb512-930k_in21k.py 8
"""

_base_ = './vit-small-p32_8xb512-93k_in21k.py'

train_cfg = dict(max_iters=930_000, val_interval=93_000)
