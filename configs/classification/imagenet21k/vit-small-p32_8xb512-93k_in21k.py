"""ViT-S/32 on ImageNet-21k, 93k steps. Expect 54.1 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet21k/vit-small-p32_8xb512-93k_in21k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in21k.py'

# no augmentation but crops and flips
model = dict(
    backbone=dict(patch_size=32),
)
train_pipeline = _base_.train_pipeline
train_pipeline.pop(3)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
