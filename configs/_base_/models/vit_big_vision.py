"""ViT-S/16 as big_vision's AugReg recipes have it, for 1000 classes: sigmoid loss, a tanh layer before the head.

The PE has no row for the class token and starts with a standard deviation of 1/sqrt(D); the GELU is the tanh form.
`sizes` is what others change. AugReg's strengths: light1 is magnitude 0 without mixup, medium1 15 with mixup 0.2,
medium2 15 with 0.5, light2 10 with 0.2. A config puts `randaugment` with its magnitude into the pipeline.
"""

sizes = {
    size: dict(
        backbone=dict(arch=f'deit-{size}', pe_type=dict(type='learnable', std=width**-0.5)),
        head=dict(in_channels=width, hidden_dim=width),
    )
    for size, width in dict(tiny=192, small=384, base=768).items()
}
# big_vision's 16 operations: each one that is chosen is applied (mmpretrain's would be skipped half of the time), and
# its magnitude runs from the first value at level 0 to the second at level 10, and beyond. Level 0 is no identity:
# contrast, colour and brightness are low, and Posterize keeps no bit.
always = dict(prob=1.0)
enhanced = dict(magnitude_range=(-0.9, 0.9), random_negative_prob=0.0, **always)  # of the factor, which is 1 more
sheared = dict(type='Shear', magnitude_range=(0, 0.3), **always)
moved = dict(type='Translate', magnitude_range=(0, 100 / 224), **always)
randaugment = dict(
    type='RandAugment',
    policies=[
        dict(type='AutoContrast', **always),
        dict(type='Equalize', **always),
        dict(type='Invert', **always),
        dict(type='Rotate', magnitude_range=(0, 30), **always),
        dict(type='Posterize', magnitude_range=(0, 4), **always),
        dict(type='Solarize', magnitude_range=(0, 256), **always),
        dict(type='SolarizeAdd', magnitude_range=(0, 110), **always),
        dict(type='ColorTransform', **enhanced),
        dict(type='mmlape.BigVisionContrast', **enhanced),
        dict(type='Brightness', **enhanced),
        dict(type='Sharpness', **enhanced),
        dict(direction='horizontal', **sheared),
        dict(direction='vertical', **sheared),
        dict(direction='horizontal', **moved),
        dict(direction='vertical', **moved),
        dict(type='Cutout', magnitude_range=(0, 80), **always),
    ],
    num_policies=2,
    total_level=10,
    hparams=dict(pad_val=128, interpolation='nearest'),
)
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
        **sizes['small']['backbone'],
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        # binary cross-entropies, summed over the classes and averaged over the images, as big_vision's
        loss=dict(type='CrossEntropyLoss', use_sigmoid=True),
        # zeros, and a bias of log(1/1000): at first every class has its share. The hidden layer has its own init.
        init_cfg=dict(type='Constant', layer='Linear', val=0.0, bias=-6.9),
        **sizes['small']['head'],
    ),
)
