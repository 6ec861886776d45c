"""Mask2Former for panoptic segmentation on COCO over ViT-Adapter-S: 80 things and 53 stuff classes."""

_base_ = 'mask2former_coco_vit-adapter.py'

model = dict(
    panoptic_head=dict(num_stuff_classes=53, loss_cls=dict(class_weight=[1.0] * 133 + [0.1])),
    panoptic_fusion_head=dict(num_stuff_classes=53),
    test_cfg=dict(panoptic_on=True),
)
