"""The small DeiT of `deit_digits.py` in an adapter, which the recipes of the mini data put into their models."""

embed_dims = 128
mini_arch = dict(embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims)
mini_adapter = dict(
    img_size=64,
    interpolate_mode='tile',
    window_attn=True,
    window_size=4,
    drop_path_rate=0.0,
    conv_inplane=16,
    deform_num_heads=4,
    pe_joining='lape',
    init_cfg=dict(checkpoint='work_dirs/deit-mini-lape_1xb32-5e_mini-digits/epoch_5.pth'),
)
