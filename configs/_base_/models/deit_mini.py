"""A DeiT for trying things out on two CPU cores: a variable, for the mini configs to put in place of DeiT-Ti."""

deit_mini = dict(embed_dims=96, num_layers=6, num_heads=3, feedforward_channels=384)
