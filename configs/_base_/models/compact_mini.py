"""A small ViT-Lite for one CPU core, 4 x 4 tokens of 28x28 pixels: variables that the mini configs use."""

compact_mini = dict(
    embed_dims=64,
    num_layers=2,
    num_heads=2,
    feedforward_channels=128,
    tokenizer=dict(type='patch', patch_size=7),
    pooling='cls_token',
)
init_std = 64**-0.5  # so narrow a model learns its first features sooner than with 0.02
