"""LiT over the small DeiT of the digits, on captions of the mini scenes: about two minutes on two CPU cores.

mmlape train configs/lit/lit_vit-mini_1xb64-600i_mini-captions.py
"""

_base_ = [
    '../_base_/models/deit_digits.py',
    '../_base_/datasets/mini_captions.py',
    '../_base_/schedules/mini_lit.py',
    '../_base_/default_runtime.py',
]
# attention in windows of the pretrained size, as in the dense mini recipes: a window is a cell of a scene
backbone = dict(
    _base_.model.backbone,
    with_cls_token=False,
    with_prefix_pe=False,
    interpolate_mode='tile',
    window_attn=True,
    window_size=4,
    init_cfg=dict(type='Pretrained', checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
)
model = dict(_delete_=True, backbone=backbone, **_base_.lit)
