"""ViT-S/16+ on ImageNet-1K, Dual PatchNorm. Expect 80.2 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/vit/vit-small-p16-plus-dpn_8xb128-372k_in1k.py 8
"""

_base_ = [
    '../_base_/models/vit_big_vision.py',
    '../_base_/datasets/imagenet_big_vision.py',
    '../_base_/schedules/big_vision_93k.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmlape', 'mmlape.models.classifiers.mixup'], allow_failed_imports=False)
sinusoids = dict(_delete_=True, type='sincos2d-moco')
model = dict(
    backbone=dict(pe_type=sinusoids, with_cls_token=False, out_type='avg_featmap', patch_norm='dual'),
    head=dict(loss=dict(_delete_=True, type='CrossEntropyLoss', use_soft=True), init_cfg=dict(bias=0.0)),
    train_cfg=dict(augments=[dict(type='mmlape.RolledMixup', alpha=0.2)]),
)
train_dataloader = dict(batch_size=128, dataset=dict(pipeline=_base_.magnitude_10))
train_cfg = dict(max_iters=372_000, val_interval=12_400)
default_hooks = dict(checkpoint=dict(interval=12_400))
auto_scale_lr = dict(base_batch_size=1024)
