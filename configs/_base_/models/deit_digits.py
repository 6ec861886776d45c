"""A small DeiT for two CPU cores as an image classifier of ten classes.

It is pretrained on crops of one digit, 4 x 4 tokens. On scenes its attention has windows of this size, and the PE is
repeated, so that every window finds what it was pretrained on; interpolated, a PE fits no window.
"""

embed_dims = 128
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=10, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    # averaged patch tokens, so that each one learns features for a dense head
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims),
        img_size=64,
        patch_size=16,
        out_type='avg_featmap',
        pe_joining='default',
        drop_path_rate=0.0,
        # so narrow a model learns its first features sooner than with 0.02
        init_cfg=dict(type='TruncNormal', layer='Linear', std=embed_dims**-0.5),
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=10,
        in_channels=embed_dims,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.0, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
)
