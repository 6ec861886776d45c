"""ViT-B/32 as big_vision has it, to fine-tune: a tanh layer before the head, no PE of the class token, sigmoid loss.

`load_from` is a complete model of ImageNet-1K. Its head is left out: a new one, of zeros, learns the set's classes.
`model.backbone.patch_size=16` makes it B/16, `model.backbone.patch_norm=dual` adds Dual PatchNorm.
"""

embed_dims = 768
load_fresh = ['head.layers.head.']
model = dict(
    type='ImageClassifier',
    # the sigmoid loss wants one-hot labels; summed over the classes, averaged over the images
    data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True, to_onehot=True),
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch='deit-base',
        img_size=224,
        patch_size=32,
        out_type='cls_token',
        with_prefix_pe=False,
        pe_joining='default',
        act_cfg=dict(type='GELU', approximate='tanh'),
    ),
    head=dict(
        type='VisionTransformerClsHead',
        in_channels=embed_dims,
        hidden_dim=embed_dims,
        loss=dict(type='CrossEntropyLoss', use_sigmoid=True),
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
    ),
)
