"""UperNet, ViT-Adapter-S, default PE. Expect 45.073 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-small-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = './upernet_deit-tiny-adapter_4xb2-160k_ade20k.py'

embed_dims = 384
model = dict(
    backbone=dict(
        arch='deit-small',
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth'),
    ),
    decode_head=dict(in_channels=[embed_dims] * 4),
    auxiliary_head=dict(in_channels=embed_dims),
)
