"""A small ViT-Lite for one CPU core, 4 x 4 tokens of 28x28 grey pixels, as an image classifier of ten classes."""

embed_dims = 64
init_std = embed_dims**-0.5  # so narrow a model learns its first features sooner than with 0.02
layers = dict(embed_dims=embed_dims, num_layers=2, num_heads=2, feedforward_channels=2 * embed_dims)
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=10, mean=[72.94], std=[90.02]),  # of the training images
    backbone=dict(
        type='mmlape.CompactTransformer',
        arch=dict(tokenizer=dict(type='patch', patch_size=7), pooling='cls_token', **layers),
        img_size=28,
        in_channels=1,
        pe_joining='default',
        # so few steps need no regularisation
        attn_drop_rate=0.0,
        drop_path_rate=0.0,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=init_std),
    ),
    head=dict(
        type='LinearClsHead',
        num_classes=10,
        in_channels=embed_dims,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.0, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
)
