"""UperNet, ViT-Adapter-S, default PE, official rates. Expect 45.073 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/upernet/upernet_deit-small-adapter-default_4xb2-160k-official_ade20k.py 4
"""

_base_ = './upernet_deit-tiny-adapter-default_4xb2-160k-official_ade20k.py'

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
optim_wrapper = dict(optimizer=dict(lr=6e-5))
