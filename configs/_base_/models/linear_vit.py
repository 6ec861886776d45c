"""ViT-B/16 and one linear layer on its last layer's patch tokens, which no norm precedes, for 150 classes."""

_base_ = './linear_head.py'

embed_dims = 768
model = dict(
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch='deit-base',
        patch_size=16,
        out_type='featmap',
        with_prefix_pe=False,
        pe_joining='default',
        final_norm=False,
        act_cfg=dict(type='GELU', approximate='tanh'),
        interpolate_mode='bilinear',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/vit_base_p16.pth'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims),
)
