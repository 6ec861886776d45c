"""UperNet of 1024 channels over ViT-Adapter-L and BEiT-L, as in ViT-Adapter's public code."""

_base_ = 'upernet_vit-adapter.py'

model = dict(
    backbone=dict(
        arch='vit-large',
        with_cls_token=True,
        pe_type='beit',
        qkv_bias='qv',
        layer_scale_init_value=1e-6,
        init_values=1e-6,
        deform_num_heads=16,
        deform_ratio=0.5,
        with_cp=True,
        init_cfg=dict(checkpoint='pretrained/beit_large_patch16_224_pt22k_ft22k.pth'),
        drop_path_rate=0.3,
    ),
    decode_head=dict(in_channels=[1024] * 4, channels=1024),
    auxiliary_head=dict(in_channels=1024),
)
