"""ViT-Ti/16 on ImageNet-1K, AugReg's recipe. Expect 72.5 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-tiny-p16_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in1k.py'

# light1: magnitude 0, no mixup
embed_dims = 192
model = dict(
    backbone=dict(arch='deit-tiny', pe_type=dict(std=embed_dims**-0.5)),
    head=dict(in_channels=embed_dims, hidden_dim=embed_dims),
    train_cfg=None,
)
train_pipeline = _base_.train_pipeline
train_pipeline[3].update(magnitude_level=0)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
