"""Mask2Former, panoptic, ViT-Adapter-L, BEiTv2. Expect 58.4 PQ (ViT-Adapter's README); not run by us.

tools/dist_train.sh configs/mask2former/mask2former_beitv2-large-adapter_16xb1-265500i_coco-panoptic.py 16
"""

_base_ = [
    '../_base_/models/mask2former_coco_vit-adapter.py',
    '../_base_/datasets/coco_panoptic.py',
    '../_base_/schedules/mask2former_265k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=_base_.beit,
    panoptic_head=dict(in_channels=[1024] * 4, **_base_.panoptic.panoptic_head),
    panoptic_fusion_head=_base_.panoptic.panoptic_fusion_head,
    test_cfg=_base_.panoptic.test_cfg,
)
optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, **_base_.paramwise))
