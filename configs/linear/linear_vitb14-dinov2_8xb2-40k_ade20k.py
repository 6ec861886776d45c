"""DINOv2's linear head on ViT-B/14, frozen; its score is in no paper or model card: not run by us.

tools/dist_train.sh configs/linear/linear_vitb14-dinov2_8xb2-40k_ade20k.py 8
"""

_base_ = [
    '../_base_/models/linear_dinov2.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=768, num_heads=12, feedforward_channels=3072),
        init_cfg=dict(checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitb14/dinov2_vitb14_pretrain.pth'),
    ),
    decode_head=dict(in_channels=[768]),
)
