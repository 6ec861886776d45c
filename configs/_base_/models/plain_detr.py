"""Plain-DETR with 300 queries over MAE-B of timm, whose last layer is read, for 80 classes."""

model = dict(
    type='mmlape.PlainDETR',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=16,
    ),
    backbone=dict(
        type='mmlape.TimmViT',
        model_name='vit_base_patch16_224.mae',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_base_patch16_224.mae'),
    ),
    bbox_head=dict(
        type='mmlape.PlainDETRHead',
        num_classes=80,
        num_queries=300,
        num_aux_queries=1500,
        many=6,
        embed_dims=256,
        num_heads=8,
        num_layers=6,
        feedforward_channels=2048,
        rpb_channels=512,
    ),
    test_cfg=dict(max_per_img=100),
)
