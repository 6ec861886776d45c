"""Mask2Former for instances, ViT-Adapter-S, default PE: not run by us, no paper's figure.

tools/dist_train.sh configs/mask2former/mask2former_deit-small-adapter_8xb2-3x_coco.py 8
"""

_base_ = [
    '../_base_/models/mask2former_coco_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(clip_grad=dict(max_norm=0.01, norm_type=2), paramwise_cfg=dict(_base_.layer_decay, _delete_=True))
auto_scale_lr = dict(base_batch_size=16)
