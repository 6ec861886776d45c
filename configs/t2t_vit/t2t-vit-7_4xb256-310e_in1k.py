"""T2T-ViT-7 on ImageNet-1K, default PE. Expect 71.69 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/t2t_vit/t2t-vit-7_4xb256-310e_in1k.py 4
"""

_base_ = [
    '../_base_/models/t2t_vit.py',
    '../_base_/datasets/imagenet_t2t.py',
    '../_base_/schedules/t2t_310e.py',
    '../_base_/default_runtime.py',
]
custom_hooks = [dict(type='EMAHook', momentum=4e-5, update_buffers=True), *_base_.custom_hooks]
