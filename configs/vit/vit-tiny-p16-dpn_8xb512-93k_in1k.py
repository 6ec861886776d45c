"""ViT-Ti/16 on ImageNet-1K, Dual PatchNorm. Expect 73.9 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/vit/vit-tiny-p16-dpn_8xb512-93k_in1k.py 8
"""

_base_ = [
    '../_base_/models/vit-tiny_big_vision.py',
    '../_base_/datasets/imagenet_big_vision.py',
    '../_base_/schedules/big_vision_93k.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmlape', 'mmlape.models.classifiers.mixup'], allow_failed_imports=False)
# light1
model = dict(backbone=dict(patch_norm='dual'), train_cfg=None)
train_dataloader = dict(dataset=dict(pipeline=_base_.magnitude_0))
