"""Sparse R-CNN, ViT-Adapter-S, default PE. Expect 48.1 box AP (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/sparse_rcnn/sparse-rcnn_deit-small-adapter_8xb2-3x_coco.py 8
"""

_base_ = [
    '../_base_/models/sparse_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(
    clip_grad=dict(max_norm=1, norm_type=2),
    paramwise_cfg=dict(custom_keys=dict(rpn_head=dict(lr_mult=0.25, decay_mult=0.002))),
)
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=16)
