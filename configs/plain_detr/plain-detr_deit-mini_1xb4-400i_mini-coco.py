"""Plain-DETR over the small DeiT on the mini data: for the tests, not for comparing methods.

mmlape train configs/plain_detr/plain-detr_deit-mini_1xb4-400i_mini-coco.py
"""

_base_ = [
    '../_base_/models/plain_detr.py',
    '../_base_/datasets/mini_coco.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = 128
dims = 64
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims),
        patch_size=16,
        out_indices=[1, 3],
        out_type='featmap',
        with_prefix_pe=False,
        with_cls_token=False,
        final_norm='every',
        img_size=64,
        interpolate_mode='tile',
        window_attn=True,
        window_size=4,
        drop_path_rate=0.0,
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    bbox_head=dict(
        num_classes=len(_base_.classes),
        num_queries=20,
        num_aux_queries=60,
        embed_dims=dims,
        num_heads=4,
        num_layers=3,
        feedforward_channels=4 * dims,
        rpb_channels=dims,
        proposal_size=12.0,  # the largest are of 96 pixels
    ),
    test_cfg=dict(max_per_img=20),
)
train_cfg = dict(max_iters=400, val_interval=134)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
default_hooks = dict(checkpoint=dict(save_best='coco/bbox_mAP', rule='greater'))
