"""A DeiT for trying things out on two CPU cores: a variable, for the mini configs to put in place of DeiT-Ti."""

deit_mini = dict(embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512)
