"""A small DeiT for two CPU cores: a variable that the mini configs use in place of DeiT-Ti."""

deit_mini = dict(embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512)
