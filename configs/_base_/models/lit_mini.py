"""LiT over the small DeiT of `deit_digits.py`, frozen, with a text tower of two layers."""

embed_dims = 128
model = dict(
    type='mmlape.LiT',
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    text=dict(type='mmlape.TextTransformer', embed_dims=64, num_layers=2, num_heads=2),
    tokenizer=dict(vocab_file='data/mini/coco/annotations/vocabulary.txt', vocab_size=26, length=20),
    width=128,
    # in the order of the folders of the digits
    classes=['eight', 'five', 'four', 'nine', 'one', 'seven', 'six', 'three', 'two', 'zero'],
    templates=['a {} on a photograph of a temple', 'a {} on a photograph of a flower'],
    # attention in windows of the pretrained size, as in the dense mini recipes: a window is a cell of a scene
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims),
        img_size=64,
        patch_size=16,
        out_type='avg_featmap',
        pe_joining='default',
        drop_path_rate=0.0,
        with_cls_token=False,
        with_prefix_pe=False,
        interpolate_mode='tile',
        window_attn=True,
        window_size=4,
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
)
