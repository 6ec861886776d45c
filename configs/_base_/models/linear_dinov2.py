"""DINOv2's linear head on its frozen ViT-S/14 without registers, for 150 classes. `sizes`: what the size changes.

'linear' reads the last layer, 'ms' the last four side by side, each through the final norm. Windows are padded on all
sides to complete patches; the PE is resized as DINOv2 does it. The released files of heads load into these models.
"""

address = 'https://dl.fbaipublicfiles.com/dinov2/dinov2_vit{0}14/dinov2_vit{0}14_pretrain.pth'
sizes = {
    size: dict(
        backbone=dict(
            arch=dict(embed_dims=dims, num_layers=layers, num_heads=dims // 64, feedforward_channels=hidden),
            ffn_type=ffn,
            frozen_stages=layers,
            init_cfg=dict(type='Pretrained', checkpoint=address.format(letter)),
        ),
        decode_head=dict(in_channels=[dims]),
    )
    for size, letter, dims, layers, hidden, ffn in (
        ('small', 's', 384, 12, 1536, 'mlp'),
        ('base', 'b', 768, 12, 3072, 'mlp'),
        ('large', 'l', 1024, 24, 4096, 'mlp'),
        ('giant', 'g', 1536, 40, 4096, 'swiglu'),
    )
}
ms = {
    size: dict(
        backbone=dict(values['backbone'], out_indices=[-4, -3, -2, -1]),
        decode_head=dict(in_channels=4 * values['decode_head']['in_channels']),
    )
    for size, values in sizes.items()
}
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
    ),
    backbone=dict(
        type='mmlape.VisionTransformer',
        img_size=518,
        patch_size=14,
        out_type='featmap',
        final_norm='every',
        layer_scale_init_value=1.0,
        patch_padding='center',
        interpolate_mode='bicubic-offset',
        **sizes['small']['backbone'],
    ),
    decode_head=dict(
        type='mmlape.BNHead',
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
        **sizes['small']['decode_head'],
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
