"""FCOS over a frozen ViT-S/14, whose features can be stored; the data are those that `mmlape new data/wood` found."""

_base_ = '../../wood.py'

model = dict(
    _delete_=True,
    type='FCOS',
    data_preprocessor=_base_.model.data_preprocessor,
    backbone=dict(
        type='mmlape.TimmViT',
        model_name='vit_small_patch14_dinov2',
        frozen=True,
        frozen_dtype='bf16',
        init_cfg=_base_.model.backbone.init_cfg,
    ),
    neck=dict(type='CTResNetNeck', in_channels=384, num_deconv_filters=(128,), num_deconv_kernels=(4,), use_dcn=False),
    bbox_head=dict(
        type='FCOSHead',
        num_classes=1,
        in_channels=128,
        feat_channels=128,
        stacked_convs=1,
        strides=[7],
        regress_ranges=((-1, 1e8),),
        center_sampling=True,
        norm_on_bbox=True,
        centerness_on_reg=True,
        loss_bbox=dict(type='GIoULoss', loss_weight=1.0),
    ),
    test_cfg=dict(nms_pre=1000, score_thr=0.05, nms=dict(type='nms', iou_threshold=0.5), max_per_img=100),
)
train_dataloader = dict(dataset=dict(side=504))  # 12 windows an epoch
