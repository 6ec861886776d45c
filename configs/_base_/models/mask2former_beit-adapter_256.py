"""Mask2Former of width 256 over ViT-Adapter-L and BEiT-L; the backward pass recomputes ViT, adapter and all FFNs."""

_base_ = 'mask2former_vit-adapter.py'

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
        drop_path_rate=0.3,
        with_cp=True,
        init_cfg=dict(checkpoint='pretrained/beit_large_patch16_224_pt22k_ft22k.pth'),
    ),
    decode_head=dict(
        in_channels=[1024] * 4,
        with_cp=True,
        pixel_decoder=dict(with_cp=True, encoder=dict(layer_cfg=dict(ffn_cfg=dict(feedforward_channels=2048)))),
    ),
)
