"""ViT-B/32 as big_vision has it, to fine-tune on another set: its sigmoid loss, and a new head of zeros.

`load_from` is a complete model of ImageNet-1K, whose head is left out; its tanh layer is kept. B/16 by
`model.backbone.patch_size=16`, Dual PatchNorm by `model.backbone.patch_norm=dual`.
"""

embed_dims = 768
load_fresh = ['head.layers.head.']
model = dict(
    type='ImageClassifier',
    # -1 to 1; the sigmoid loss wants one-hot labels, also where nothing is mixed
    data_preprocessor=dict(num_classes=1000, mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True, to_onehot=True),
    backbone=dict(
        type='mmlape.VisionTransformer',
        img_size=224,
        patch_size=32,
        out_type='cls_token',
        with_prefix_pe=False,
        pe_joining='default',
        act_cfg=dict(type='GELU', approximate='tanh'),
        init_cfg=dict(type='mmlape.BigVisionInit'),
        arch='deit-base',
        pe_type=dict(type='learnable', std=embed_dims**-0.5),
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        # binary cross-entropies, summed over the classes and averaged over the images, as big_vision's
        loss=dict(type='CrossEntropyLoss', use_sigmoid=True),
        # the hidden layer has its own init
        init_cfg=dict(type='Constant', layer='Linear', val=0.0, bias=0.0),
        in_channels=embed_dims,
        hidden_dim=embed_dims,
    ),
)
