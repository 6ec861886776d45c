"""UperNet with DINOv3-B, the adapter reads it frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/upernet_dinov3-base-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = './upernet_dinov2-small-adapter_4xb2-160k_ade20k.py'

embed_dims = 768
model = dict(
    backbone=dict(
        vit=dict(model_name='vit_base_patch16_dinov3.lvd1689m', drop_path_rate=0.0, frozen=True),
        mode='read-only',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3.lvd1689m'),
    ),
    decode_head=dict(in_channels=[embed_dims] * 4),
    auxiliary_head=dict(in_channels=embed_dims),
)
