"""What the datasets of big_vision's recipes share: Inception crops of 224, flips, RandAugment, and the loaders.

AugReg's strengths: light1 is magnitude 0 without mixup, medium1 15 with mixup 0.2, medium2 15 with 0.5, light2 10 with
0.2. TensorFlow's bilinear resize has no antialiasing, as OpenCV's.
"""

default_scope = 'mmpretrain'
visualizer = dict(type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')

img_size = 224
load_image = dict(type='LoadImageFromFile')
crop = dict(type='RandomResizedCrop', scale=img_size, crop_ratio_range=(0.05, 1.0), interpolation='bilinear')
flip = dict(type='RandomFlip', prob=0.5, direction='horizontal')
resize_test = dict(type='ResizeEdge', scale=256, edge='short', interpolation='area')
pack = dict(type='PackInputs')
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
train_dataloader = dict(
    batch_size=512, num_workers=16, persistent_workers=True, sampler=dict(type='InfiniteSampler', shuffle=True)
)
val_dataloader = dict(
    batch_size=256, num_workers=8, persistent_workers=True, sampler=dict(type='DefaultSampler', shuffle=False)
)
test_dataloader = val_dataloader
