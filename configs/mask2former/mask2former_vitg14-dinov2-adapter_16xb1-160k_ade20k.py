"""Mask2Former, DINOv2's own adapter over its frozen ViT-g/14; no public score of its own: not run by us.

DINOv2's released segmentor loads into this model. Its config is not public as text: widths and layers are those of the
printed model; pretraining size, interactions and drop path those that copies of the config agree on; windows, stride
and schedule are our choice.

tools/dist_train.sh configs/mask2former/mask2former_vitg14-dinov2-adapter_16xb1-160k_ade20k.py 16
"""

_base_ = [
    '../_base_/models/mask2former_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
crop_size = (896, 896)
scale = (3584, 896)
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=1536, num_layers=40, num_heads=24, feedforward_channels=4096),
        img_size=518,
        patch_size=14,
        with_cls_token=True,
        ffn_type='swiglu',
        frozen_stages=40,
        interaction_indexes=[[0, 9], [10, 19], [20, 29], [30, 39]],
        deform_num_heads=24,
        deform_ratio=0.5,
        drop_path_rate=0.4,
        init_cfg=dict(checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitg14/dinov2_vitg14_pretrain.pth'),
    ),
    decode_head=dict(in_channels=[1536] * 4, **_base_.heads.giant),
    test_cfg=dict(crop_size=crop_size, stride=(512, 512)),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(batch_size=1, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(
    optimizer=dict(lr=3e-5), paramwise_cfg=dict(_delete_=True, **_base_.paramwise, layer_decay_rate=0.95)
)
auto_scale_lr = dict(base_batch_size=16)
