"""HTC++ over ViT-Adapter-L: Hybrid Task Cascade with attention on the last map, FPN and a semantic branch."""

_base_ = 'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py'

embed_dims = 1024
drop_path_rate = 0.4
attention = dict(type='mmlape.ExtraAttention', in_channels=[embed_dims] * 4, num_head=32)
fpn = dict(type='FPN', in_channels=[embed_dims] * 4, out_channels=256, num_outs=5)
mask_head = dict(
    type='HTCMaskHead',
    num_convs=4,
    in_channels=256,
    conv_out_channels=256,
    num_classes=80,
    loss_mask=dict(type='CrossEntropyLoss', use_mask=True, loss_weight=1.0),
)
model = dict(
    type='HybridTaskCascade',
    data_preprocessor=dict(pad_seg=True),
    backbone=dict(
        _delete_=True,
        type='mmlape.ViTAdapter',
        arch='vit-large',
        img_size=384,
        pe_joining='default',
        window_attn=[True, True, True, True, True, False] * 4,
        window_size=14,
        vit_feature_source='last',
        deform_num_heads=16,
        deform_ratio=0.5,
        drop_path_rate=drop_path_rate,
        with_cp=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='pretrained/L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1--imagenet2012-steps_20k-lr_0.01-res_384.pth',
        ),
    ),
    neck=[dict(attention, drop_path=drop_path_rate), fpn],
    roi_head=dict(
        type='mmlape.HybridTaskCascadeRoIHead',
        interleaved=True,
        mask_info_flow=True,
        bbox_head=[
            dict(
                type='Shared4Conv1FCBBoxHead',
                in_channels=256,
                fc_out_channels=1024,
                roi_feat_size=7,
                num_classes=80,
                bbox_coder=dict(type='DeltaXYWHBBoxCoder', target_means=[0.0] * 4, target_stds=stds),
                reg_class_agnostic=True,
                loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
                loss_bbox=dict(type='SmoothL1Loss', beta=1.0, loss_weight=1.0),
            )
            for stds in ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
        ],
        mask_head=[dict(mask_head, with_conv_res=False), mask_head, mask_head],
        semantic_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=14, sampling_ratio=0),
            out_channels=256,
            featmap_strides=[8],
        ),
        semantic_head=dict(
            type='FusedSemanticHead',
            num_ins=5,
            fusion_level=1,
            seg_scale_factor=1 / 8,
            num_convs=4,
            in_channels=256,
            conv_out_channels=256,
            num_classes=183,
            loss_seg=dict(type='CrossEntropyLoss', ignore_index=255, loss_weight=0.2),
        ),
    ),
    # as mmdetection 2 had it by default: every object has a box in each stage
    train_cfg=dict(
        rcnn=[
            dict(stage, assigner=dict(stage['assigner'], match_low_quality=True))
            for stage in _base_.model.train_cfg.rcnn
        ]
    ),
    test_cfg=dict(
        rcnn=dict(score_thr=0.001, nms=dict(_delete_=True, type='soft_nms', iou_threshold=0.5), max_per_img=300)
    ),
)
