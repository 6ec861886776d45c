"""UperNet with DINOv2-S, registers, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/upernet_dinov2-small-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/models/foundation.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
]
embed_dims = 384
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name='vit_small_patch14_reg4_dinov2.lvd142m', drop_path_rate=0.2),
        vit_feature_source='interaction',
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(in_channels=[embed_dims] * 4),
    auxiliary_head=dict(in_channels=embed_dims),
    test_cfg=dict(crop_size=_base_.crop_size, stride=(341, 341)),
)
optim_wrapper = dict(paramwise_cfg=_base_.paramwise)
