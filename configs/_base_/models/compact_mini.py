"""A small ViT-Lite for one CPU core: variables that the mini configs use in place of the public sizes."""

compact_mini = dict(
    embed_dims=64,
    num_layers=3,
    num_heads=2,
    feedforward_channels=128,
    tokenizer=dict(type='patch', patch_size=4),
    pooling='cls_token',
)
