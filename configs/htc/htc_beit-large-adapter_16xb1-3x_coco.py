"""HTC++, ViT-Adapter-L, BEiT. Expect 58.4 box / 50.8 mask AP (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/htc/htc_beit-large-adapter_16xb1-3x_coco.py 16
"""

_base_ = [
    '../_base_/models/htc_beit-adapter.py',
    '../_base_/datasets/coco_stuffthing.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(paramwise_cfg=dict(_base_.layer_decay, _delete_=True))
auto_scale_lr = dict(base_batch_size=16)
