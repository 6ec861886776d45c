"""ViT-B/16 and one linear layer on its last layer's patch tokens, which no norm precedes, for 150 classes.

Logits of 32 x 32 patches are resized to the image; there is no other head, and no dropout but stochastic depth.
"""

_base_ = './encoder_decoder.py'

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
    decode_head=dict(
        type='FCNHead',
        num_convs=0,
        concat_input=False,
        in_channels=embed_dims,
        channels=embed_dims,
        in_index=0,
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
    ),
)
