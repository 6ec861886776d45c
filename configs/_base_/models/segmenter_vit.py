"""Seg-Ti-Mask/16: DeiT-Ti and a mask transformer of two layers, for 150 classes."""

_base_ = './encoder_decoder.py'

embed_dims = 192
num_heads = 3
model = dict(
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch='deit-tiny',
        patch_size=16,
        out_type='featmap',
        pe_joining='default',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_tiny_patch16_224-a1311bcf.pth'),
    ),
    decode_head=dict(
        type='SegmenterMaskTransformerHead',
        in_channels=embed_dims,
        channels=embed_dims,
        embed_dims=embed_dims,
        num_heads=embed_dims // 64,
        num_layers=2,
        num_classes=150,
        drop_rate=0.1,
        attn_drop_rate=0.1,
        drop_path_rate=0.0,
        # mmsegmentation's dropout_ratio belongs to a layer that this head does not have
        dropout_ratio=0.0,
        # the mean over labelled pixels, as in the public Segmenter
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
    ),
)
