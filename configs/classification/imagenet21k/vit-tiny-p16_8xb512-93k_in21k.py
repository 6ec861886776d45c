"""ViT-Ti/16 on ImageNet-21k, 93k steps. Expect 52.2 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet21k/vit-tiny-p16_8xb512-93k_in21k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in21k.py'

# no augmentation but crops and flips
embed_dims = 192
model = dict(
    backbone=dict(arch='deit-tiny', pe_type=dict(std=embed_dims**-0.5)),
    head=dict(in_channels=embed_dims),
)
train_pipeline = _base_.train_pipeline
train_pipeline.pop(3)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
