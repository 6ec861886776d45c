"""A small plain ViT for one CPU core, 4 x 4 tokens of 28x28 grey pixels, of the same layers as the small ViT-Lite."""

_base_ = 'compact_mini.py'

embed_dims = 64
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=embed_dims, num_layers=2, num_heads=2, feedforward_channels=2 * embed_dims),
        img_size=28,
        patch_size=7,
        in_channels=1,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=embed_dims**-0.5),
    )
)
