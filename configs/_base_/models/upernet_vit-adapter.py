"""UperNet over ViT-Adapter-Ti, for 150 classes, with an auxiliary FCN head on the map of stride 16.

Attention is global in all layers. Map k takes the features after interaction k.
"""

_base_ = './encoder_decoder.py'

embed_dims = 192
shared_head = dict(
    num_classes=150, dropout_ratio=0.1, norm_cfg=dict(type='SyncBN', requires_grad=True), align_corners=False
)
model = dict(
    backbone=dict(
        type='mmlape.ViTAdapter',
        arch='deit-tiny',
        pe_joining='default',
        drop_path_rate=0.1,
        vit_feature_source='interaction',
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_tiny_patch16_224-a1311bcf.pth'),
    ),
    decode_head=dict(
        type='UPerHead',
        in_channels=[embed_dims] * 4,
        in_index=[0, 1, 2, 3],
        channels=512,
        pool_scales=(1, 2, 3, 6),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
        **shared_head,
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_channels=embed_dims,
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4),
        **shared_head,
    ),
)
