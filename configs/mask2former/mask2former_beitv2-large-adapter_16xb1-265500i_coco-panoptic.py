"""Mask2Former, panoptic, ViT-Adapter-L, BEiTv2. Expect 58.4 PQ (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beitv2-large-adapter_16xb1-265500i_coco-panoptic.py 16
"""

_base_ = [
    '../_base_/models/mask2former_coco-panoptic_beit-adapter.py',
    '../_base_/datasets/coco_panoptic.py',
    '../_base_/schedules/mask2former_265k.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(paramwise_cfg=dict(_base_.layer_decay, _delete_=True))
