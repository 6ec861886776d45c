"""ViT-S/16 on ImageNet-1K, Dual PatchNorm. Expect 79.7 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/vit/vit-small-p16-dpn_8xb512-93k_in1k.py 8
"""

_base_ = [
    '../_base_/models/vit_big_vision.py',
    '../_base_/datasets/imagenet_big_vision.py',
    '../_base_/schedules/big_vision_93k.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmlape', 'mmlape.models.classifiers.mixup'], allow_failed_imports=False)
# medium2
model = dict(backbone=dict(patch_norm='dual'), train_cfg=dict(augments=[dict(type='mmlape.RolledMixup', alpha=0.5)]))
train_dataloader = dict(dataset=dict(pipeline=_base_.magnitude_15))
