"""DINOv2's linear head on ViT-g/14, frozen; its score is in no paper or model card: not run by us.

tools/dist_train.sh configs/linear/linear_vitg14-dinov2_8xb2-40k_ade20k.py 8
"""

_base_ = [
    '../_base_/models/linear_dinov2.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=1536, num_layers=40, num_heads=24, feedforward_channels=4096),
        ffn_type='swiglu',
        frozen_stages=40,
        init_cfg=dict(checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitg14/dinov2_vitg14_pretrain.pth'),
    ),
    decode_head=dict(in_channels=[1536]),
)
