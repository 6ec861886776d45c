"""A small DeiT and a linear layer on the mini data: for the tests, and docs/results/dpn.md.

tools/train.py configs/segmentation/linear_deit-mini_1xb8-100i_mini-ade.py
"""

_base_ = [
    '../_base_/models/linear_vit.py',
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
        act_cfg=dict(_delete_=True, type='GELU'),
        init_cfg=dict(checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, num_classes=len(_base_.classes)),
    test_cfg=dict(mode='whole'),
)
train_dataloader = dict(batch_size=8)
train_cfg = dict(max_iters=100, val_interval=100)
# tokens that said which digit an image shows must learn where it ends
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
auto_scale_lr = dict(base_batch_size=8)
default_hooks = dict(checkpoint=dict(interval=100, save_best='mIoU', rule='greater'))
