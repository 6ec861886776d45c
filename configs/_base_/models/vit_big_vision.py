"""ViT-S/16 as big_vision's AugReg recipes have it, for 1000 classes: sigmoid loss, a tanh layer before the head."""

embed_dims = 384
model = dict(
    type='ImageClassifier',
    # -1 to 1; the sigmoid loss wants one-hot labels, also where nothing is mixed
    data_preprocessor=dict(num_classes=1000, mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True, to_onehot=True),
    backbone=dict(
        type='mmlape.VisionTransformer',
        img_size=224,
        patch_size=16,
        out_type='cls_token',
        with_prefix_pe=False,
        pe_joining='default',
        act_cfg=dict(type='GELU', approximate='tanh'),
        init_cfg=dict(type='mmlape.BigVisionInit'),
        arch='deit-small',
        pe_type=dict(type='learnable', std=embed_dims**-0.5),
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        # binary cross-entropies, summed over the classes and averaged over the images, as big_vision's
        loss=dict(type='CrossEntropyLoss', use_sigmoid=True),
        # zeros, and a bias of log(1/1000): at first every class has its share. The hidden layer has its own init.
        init_cfg=dict(type='Constant', layer='Linear', val=0.0, bias=-6.9),
        in_channels=embed_dims,
        hidden_dim=embed_dims,
    ),
)
