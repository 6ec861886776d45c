"""UperNet over ViT-Adapter-Ti, for 150 classes, with an auxiliary FCN head on the map of stride 16.

Attention is global in all layers. Map k takes the features after interaction k. `sizes`: what the width changes.
`beit`: BEiT-L of ViT-Adapter's public code under the adapter. `paramwise`: its rule of learning rates and decay, where
all but vectors decays.
"""

paramwise = dict(layer_decay_rate=0.9, flat_decay_mult=0.0, position_decay_mult=1.0)
beit = dict(
    arch='vit-large',
    with_cls_token=True,
    pe_type='beit',
    qkv_bias='qv',
    layer_scale_init_value=1e-6,
    init_values=1e-6,
    deform_num_heads=16,
    deform_ratio=0.5,
    with_cp=True,
    init_cfg=dict(checkpoint='pretrained/beit_large_patch16_224_pt22k_ft22k.pth'),
)

sizes = dict(
    tiny=dict(
        backbone=dict(arch='deit-tiny', drop_path_rate=0.1),
        decode_head=dict(in_channels=[192] * 4),
        auxiliary_head=dict(in_channels=192),
    ),
    small=dict(
        backbone=dict(arch='deit-small', drop_path_rate=0.2),
        decode_head=dict(in_channels=[384] * 4),
        auxiliary_head=dict(in_channels=384),
    ),
)
shared_head = dict(
    num_classes=150, dropout_ratio=0.1, norm_cfg=dict(type='SyncBN', requires_grad=True), align_corners=False
)
model = dict(
    type='EncoderDecoder',
    # images are normalised as the weights expect, and padded to the crop
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
        type='mmlape.ViTAdapter',
        pe_joining='default',
        vit_feature_source='interaction',
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_tiny_patch16_224-a1311bcf.pth'),
        **sizes['tiny']['backbone'],
    ),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        channels=512,
        pool_scales=(1, 2, 3, 6),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
        **shared_head,
        **sizes['tiny']['decode_head'],
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4),
        **shared_head,
        **sizes['tiny']['auxiliary_head'],
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
