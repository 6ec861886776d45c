"""Mask R-CNN, Swin-T, default PE. Not run by us; no paper's figure.

tools/dist_train.sh configs/mask_rcnn/mask-rcnn_swin-tiny_4xb4-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_swin.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_type='learnable', init_cfg=dict(checkpoint='pretrained/swin_tiny_default.pth')))
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=_base_.uncropped_pipeline))
optim_wrapper = dict(paramwise_cfg=dict(_base_.swin_decay, _delete_=True))
auto_scale_lr = dict(base_batch_size=16)
