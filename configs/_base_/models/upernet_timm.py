"""UperNet over DINOv2-S of timm and its adapter, for 150 classes."""

_base_ = 'upernet_vit-adapter.py'

embed_dims = 384
name = 'vit_small_patch14_reg4_dinov2.lvd142m'
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name=name, drop_path_rate=0.2),
        vit_feature_source='interaction',
        init_cfg=dict(type='Pretrained', checkpoint=f'hf-hub:timm/{name}'),
    ),
    decode_head=dict(in_channels=[embed_dims] * 4),
    auxiliary_head=dict(in_channels=embed_dims),
)
