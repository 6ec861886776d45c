"""LiT over a frozen ViT-B/16 as big_vision has it, with a text tower of BERT-base's size; softmax loss."""

embed_dims = 768
model = dict(
    type='mmlape.LiT',
    data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True),
    text=dict(type='mmlape.TextTransformer', embed_dims=768, num_layers=12, num_heads=12, drop_rate=0.1),
    tokenizer=dict(vocab_file='data/coco/annotations/bert-uncased.txt', vocab_size=30_522, length=16),
    width=768,
    loss='softmax',
    classes='imagenet',
    templates='openai_imagenet',
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch='deit-base',
        img_size=224,
        patch_size=16,
        out_type='cls_token',
        with_prefix_pe=False,
        pe_joining='default',
        pe_type=dict(type='learnable', std=embed_dims**-0.5),
        act_cfg=dict(type='GELU', approximate='tanh'),
    ),
)
