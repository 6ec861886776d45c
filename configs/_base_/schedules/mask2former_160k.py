"""160k iterations of Mask2Former in ViT-Adapter's public code: AdamW with layer decay, linear warm-up and decay."""

_base_ = 'iterations.py'

interval = 16000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=2e-5, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        layer_decay_rate=0.9,
        layer_decay_first=[
            f'decode_head.{part}' for part in ('mask_embed', 'cls_embed', 'level_embed', 'query_embed', 'query_feat')
        ],
        flat_decay_mult=0.0,
        position_decay_mult=1.0,
    ),
)
warmup_iters = 1500
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup_iters),
]
default_hooks = dict(checkpoint=dict(interval=interval, max_keep_ckpts=2, save_best='mIoU', rule='greater'))
auto_scale_lr = dict(enable=False, base_batch_size=16)
