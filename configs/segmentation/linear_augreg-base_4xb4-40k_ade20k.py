"""A linear head with AugReg-B, frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/linear_augreg-base_4xb4-40k_ade20k.py 4
"""

_base_ = './linear_dinov2-small_4xb4-40k_ade20k.py'

embed_dims = 768
model = dict(
    data_preprocessor=_base_.half,
    backbone=dict(
        model_name='vit_base_patch16_224.augreg_in21k',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_224.augreg_in21k'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims),
)
