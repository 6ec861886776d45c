"""A small DeiT for two CPU cores: variables that the mini configs use in place of DeiT-Ti.

It is pretrained on crops of one digit, 4 x 4 tokens. On scenes its attention has windows of this size, and the PE is
repeated, so that every window finds what it was pretrained on; interpolated, a PE fits no window.
"""

deit_mini = dict(embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512)
init_std = 128**-0.5  # so narrow a model learns its first features sooner than with 0.02
crop = 64
in_windows = dict(img_size=crop, interpolate_mode='tile', window_attn=True, window_size=crop // 16)
mini_adapter = dict(in_windows, drop_path_rate=0.0, conv_inplane=16, deform_num_heads=4)
