"""Segmenter with DINOv2-S, registers, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_dinov2-small_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter_vit.py',
    '../_base_/models/foundation.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
]
embed_dims = 384
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViT',
        model_name='vit_small_patch14_reg4_dinov2.lvd142m',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, embed_dims=embed_dims, num_heads=embed_dims // 64),
    test_cfg=dict(crop_size=_base_.crop_size, stride=_base_.crop_size),
)
