"""PMT: a plain mask decoder of six layers over frozen DINOv3-L, for 150 classes."""

width = 1024
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
        test_cfg=dict(size=(512, 512)),
    ),
    backbone=dict(
        type='mmlape.TimmViT',
        model_name='vit_large_patch16_dinov3.lvd1689m',
        frozen=True,
        out_indices=[5, 11, 17, 23],
        out_type='raw',
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_large_patch16_dinov3.lvd1689m'),
    ),
    decode_head=dict(
        type='mmlape.PlainMaskHead',
        in_channels=[width] * 4,
        num_classes=150,
        num_heads=16,
        num_prefix=5,
        patch_size=16,
        num_queries=100,
        num_layers=6,
        feedforward_channels=width,
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
# masked attention vanishes layer by layer, in shares of the iterations
custom_hooks = [
    dict(
        type='mmlape.MaskAnnealingHook',
        starts=[0.0, 0.266, 0.366, 0.466, 0.566, 0.667],
        ends=[0.148, 0.433, 0.533, 0.633, 0.733, 0.833],
    )
]
