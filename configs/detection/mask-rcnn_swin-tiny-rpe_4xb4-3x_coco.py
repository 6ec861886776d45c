"""Mask R-CNN, Swin-T, relative bias only. Not run by us; no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_swin-tiny-rpe_4xb4-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_swin.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
]
# the public recipe has no crop of 1024 at the end
train_pipeline = [*_base_.train_pipeline[:-2], _base_.train_pipeline[-1]]
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
# the public recipe decays biases, and batch norms
decays = dict(_delete_=True, custom_keys=dict(norm=dict(decay_mult=0.0)))
optim_wrapper = dict(paramwise_cfg=decays)
auto_scale_lr = dict(base_batch_size=16)
