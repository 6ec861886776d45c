"""ATSS, ViT-Adapter-S, default PE. Expect 49.6 box AP (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/atss/atss_deit-small-adapter_8xb2-3x_coco.py 8
"""

_base_ = [
    '../_base_/models/atss_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
auto_scale_lr = dict(base_batch_size=16)
