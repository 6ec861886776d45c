"""UperNet with the adapter over a small ViT of timm's on the mini data: for the tests, not for comparing methods.

mmlape train configs/upernet/upernet_timm-mini-adapter_1xb4-200i_mini-ade.py
"""

_base_ = [
    '../_base_/models/upernet_timm.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = 64
channels = 64
num_classes = len(_base_.classes)
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViTAdapter',
        vit=dict(
            model_name='vit_tiny_patch16_224',
            img_size=(128, 128),
            model_args=dict(embed_dim=embed_dims, depth=4, num_heads=4, mlp_ratio=2, reg_tokens=2),
        ),
        vit_feature_source='interaction',
        conv_inplane=16,
        deform_num_heads=4,
    ),
    decode_head=dict(in_channels=[embed_dims] * 4, channels=channels, num_classes=num_classes),
    auxiliary_head=dict(in_channels=embed_dims, channels=channels, num_classes=num_classes),
    test_cfg=dict(_delete_=True, mode='whole'),
)
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)
train_cfg = dict(max_iters=200, val_interval=67)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))
