"""ViT-B/32 on ImageNet-21k, 93k steps. Expect 60.9 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet21k/vit-base-p32_8xb512-93k_in21k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in21k.py'

# light2: magnitude 10, mixup 0.2
custom_imports = dict(imports=['mmlape', 'mmlape.models.classifiers.mixup'], allow_failed_imports=False)
embed_dims = 768
model = dict(
    backbone=dict(arch='deit-base', patch_size=32, pe_type=dict(std=embed_dims**-0.5)),
    head=dict(in_channels=embed_dims),
    train_cfg=dict(augments=[dict(type='mmlape.RolledMixup', alpha=0.2)]),
)
train_pipeline = _base_.train_pipeline
train_pipeline[3].update(magnitude_level=10)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
