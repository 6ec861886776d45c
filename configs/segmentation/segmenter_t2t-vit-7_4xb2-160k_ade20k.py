"""Segmenter (mask transformer) over T2T-ViT-7, default PE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_t2t-vit-7_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_deit-tiny_4xb2-160k_ade20k.py'

embed_dims = 256
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.T2TViT',
        arch='t2t-vit-7',
        img_size=_base_.crop_size,
        out_type='featmap',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/71.7_T2T_ViT_7.pth.tar'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, embed_dims=embed_dims, num_heads=embed_dims // 64),
)
