"""Faster R-CNN with a small ViT-Adapter, from scratch, on photographed objects; to try out, not for comparing methods.

mmlape train configs/faster_rcnn/faster-rcnn_deit-mini-adapter_1xb4-2000i_mini-objects-coco.py
"""

_base_ = [
    '../_base_/models/faster_rcnn_vit-adapter.py',
    '../_base_/datasets/objects_coco.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = 128
channels = 64
model = dict(
    backbone=dict(
        arch=dict(
            _delete_=True, embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims
        ),
        img_size=_base_.crop_size,
        window_attn=False,
        drop_path_rate=0.0,
        conv_inplane=16,
        deform_num_heads=4,
        init_cfg=dict(_delete_=True, type='TruncNormal', layer='Linear', std=embed_dims**-0.5),
    ),
    neck=dict(in_channels=[embed_dims] * 4, out_channels=channels),
    rpn_head=dict(in_channels=channels, feat_channels=channels),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=channels),
        bbox_head=dict(in_channels=channels, fc_out_channels=4 * channels, num_classes=len(_base_.classes)),
    ),
    train_cfg=dict(rpn_proposal=dict(max_per_img=200), rcnn=dict(sampler=dict(num=64))),
    test_cfg=dict(rpn=dict(max_per_img=200)),
)
train_dataloader = dict(dataset=dict(pipeline=_base_.boxes_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.boxes_test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
train_cfg = dict(max_iters=2000, val_interval=500)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
default_hooks = dict(checkpoint=dict(interval=500, save_best='coco/bbox_mAP', rule='greater'))
