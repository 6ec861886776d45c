"""HTC++ over ViT-Adapter-L and BEiT-L, all of whose layers have windows."""

_base_ = 'htc_vit-adapter.py'

embed_dims = 1024
model = dict(
    backbone=dict(
        img_size=224,
        pe_type='beit',
        qkv_bias='qv',
        layer_scale_init_value=1e-6,
        init_values=1e-6,
        window_attn=True,
        window_size=[14, 14, 14, 14, 14, 56] * 4,
        window_padding='before-qkv',
        with_cp=False,
        init_cfg=dict(checkpoint='pretrained/beit_large_patch16_224_pt22k_ft22k.pth'),
    ),
    neck=[
        dict(type='mmlape.ExtraAttention', in_channels=[embed_dims] * 4, num_head=32, drop_path=0.3),
        dict(type='FPN', in_channels=[embed_dims] * 4, out_channels=256, num_outs=5),
    ],
    test_cfg=dict(rcnn=dict(max_per_img=100)),
)
