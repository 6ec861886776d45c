"""ViT-B/16 on Sun397, augmented, longer. Expect 60.8 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/sun397/vit-base-p16_4xb128-600e-aug_sun397.py 4
"""

_base_ = './vit-base-p16_4xb128-300e-aug_sun397.py'

train_cfg = dict(max_epochs=600)
param_scheduler = _base_.param_scheduler
param_scheduler[0].update(end=60)
param_scheduler[1].update(begin=60)
