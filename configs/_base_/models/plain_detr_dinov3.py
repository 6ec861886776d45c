"""DINOv3's Plain-DETR over frozen DINOv3-B: four layers, 2 x 2 windows beside the image, an encoder, 1,500 queries."""

_base_ = 'plain_detr.py'

name = 'vit_base_patch16_dinov3.lvd1689m'
model = dict(
    windows=2,
    backbone=dict(
        model_name=name,
        drop_path_rate=0.0,
        frozen=True,
        out_indices=[2, 5, 8, 11],
        init_cfg=dict(checkpoint=f'hf-hub:timm/{name}'),
    ),
    bbox_head=dict(num_queries=1500, num_encoder_layers=6, embed_dims=768, normalised_pe=True),
)
