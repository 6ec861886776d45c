"""Segmenter with a small DeiT on the mini data, default PE: for the demo and the tests, not for comparing methods.

tools/train.py configs/segmentation/segmenter_deit-mini_1xb16-250i_mini-ade.py
"""

_base_ = [
    '../_base_/models/segmenter_vit.py',
    '../_base_/models/deit_mini.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
]
embed_dims = _base_.deit_mini.embed_dims
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        arch=dict(_delete_=True, **_base_.deit_mini),
        with_cls_token=False,
        **_base_.in_windows,
        drop_path_rate=0.0,
        init_cfg=dict(checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(
        in_channels=embed_dims,
        channels=embed_dims,
        embed_dims=embed_dims,
        num_heads=_base_.deit_mini.num_heads,
        num_classes=len(_base_.classes),
        drop_rate=0.0,
        attn_drop_rate=0.0,
        init_std=_base_.init_std,
    ),
    test_cfg=dict(mode='whole'),
)
train_dataloader = dict(batch_size=16)
train_cfg = dict(max_iters=250, val_interval=125)
# tokens that said which digit an image shows must learn where it ends
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
auto_scale_lr = dict(base_batch_size=16)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))
