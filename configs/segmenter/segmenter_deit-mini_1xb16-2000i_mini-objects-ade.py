"""Segmenter with a small DeiT, from scratch, on photographed objects; to try out, not for comparing methods.

mmlape train configs/segmenter/segmenter_deit-mini_1xb16-2000i_mini-objects-ade.py
"""

_base_ = [
    '../_base_/models/segmenter_mini.py',
    '../_base_/datasets/objects_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    # attention is global: the PE of 16 x 16 patches is interpolated on other canvases
    backbone=dict(
        img_size=_base_.crop_size,
        window_attn=False,
        interpolate_mode='bicubic',
        init_cfg=dict(_delete_=True, type='TruncNormal', layer='Linear', std=_base_.embed_dims**-0.5),
    ),
    decode_head=dict(num_classes=len(_base_.classes)),
)
train_cfg = dict(max_iters=2000, val_interval=500)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
auto_scale_lr = dict(base_batch_size=16)
default_hooks = dict(checkpoint=dict(interval=500, save_best='mIoU', rule='greater'))
