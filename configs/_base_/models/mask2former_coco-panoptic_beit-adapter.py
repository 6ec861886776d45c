"""Mask2Former for panoptic segmentation on COCO over ViT-Adapter-L and BEiTv2-L, all of whose layers have windows."""

_base_ = 'mask2former_coco_vit-adapter.py'

model = dict(
    backbone=dict(
        arch='vit-large',
        pe_type='beit',
        qkv_bias='qv',
        layer_scale_init_value=1e-6,
        init_values=1e-6,
        deform_num_heads=16,
        deform_ratio=0.5,
        drop_path_rate=0.4,
        window_attn=True,
        window_size=[14, 14, 14, 14, 14, 56] * 4,
        window_padding='before-qkv',
        init_cfg=dict(checkpoint='pretrained/beitv2_large_patch16_224_pt1k_ft21k.pth'),
    ),
    panoptic_head=dict(in_channels=[1024] * 4, num_stuff_classes=53, loss_cls=dict(class_weight=[1.0] * 133 + [0.1])),
    panoptic_fusion_head=dict(num_stuff_classes=53),
    test_cfg=dict(panoptic_on=True),
)
