"""ViT-B/32 on Sun397, augmented. Expect 48.3 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/sun397/vit-base-p32_4xb128-300e-aug_sun397.py 4
"""

_base_ = './vit-base-p32_4xb128-300e_sun397.py'

# medium2, the best for B on ImageNet-1K, is our choice: the paper searches mixup and magnitude
custom_imports = dict(imports=['mmlape', 'mmlape.models.classifiers.mixup'], allow_failed_imports=False)
model = dict(train_cfg=dict(augments=[dict(type='mmlape.RolledMixup', alpha=0.5)]))
train_pipeline = [*_base_.train_pipeline[:-1], _base_.randaugment, _base_.train_pipeline[-1]]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
