"""DETR over ResNet-18 on the mini data, sine PE and contextual iRPE: for the tests, not for comparing methods.

tools/dist_train.sh configs/detr/detr_r18-irpe-product-k-9x9_2xb2-200i_mini-coco.py 2
"""

_base_ = [
    '../_base_/models/detr_r50.py',
    '../_base_/datasets/mini_coco.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]

dims = 64
attn = dict(embed_dims=dims, num_heads=2, dropout=0.0)
layer = dict(self_attn_cfg=attn, ffn_cfg=dict(embed_dims=dims, feedforward_channels=4 * dims, ffn_drop=0.0))
num_layers = 2
model = dict(
    pe_type=['sine', dict(type='irpe', ratio=2.0)],
    num_queries=20,
    backbone=dict(
        depth=18,
        num_stages=3,
        strides=(1, 2, 2),
        dilations=(1, 1, 1),
        out_indices=(2,),
        frozen_stages=-1,
        norm_cfg=dict(requires_grad=True),
        norm_eval=False,
        init_cfg=None,
    ),
    neck=dict(in_channels=[256], out_channels=dims),
    encoder=dict(num_layers=num_layers, layer_cfg=layer),
    decoder=dict(num_layers=num_layers, layer_cfg=dict(layer, cross_attn_cfg=attn)),
    positional_encoding=dict(num_feats=dims // 2),
    bbox_head=dict(embed_dims=dims, num_classes=len(_base_.classes)),
    test_cfg=dict(max_per_img=20),
)
train_dataloader = dict(batch_size=2)
train_cfg = dict(max_iters=200, val_interval=67)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
default_hooks = dict(checkpoint=dict(save_best='coco/bbox_mAP', rule='greater'))
