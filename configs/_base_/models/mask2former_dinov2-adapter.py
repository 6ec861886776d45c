"""Mask2Former of width 1536 over an adapter around DINOv2's frozen ViT-g/14, as DINOv2's released segmentor."""

_base_ = 'mask2former_vit-adapter.py'

width = 1536
attention = dict(embed_dims=width, num_heads=32)
ffn = dict(embed_dims=width, feedforward_channels=4 * width)
model = dict(
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
    decode_head=dict(
        in_channels=[1536] * 4,
        feat_channels=width,
        out_channels=width,
        pixel_decoder=dict(
            encoder=dict(layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
            positional_encoding=dict(num_feats=width // 2),
        ),
        positional_encoding=dict(num_feats=width // 2),
        transformer_decoder=dict(layer_cfg=dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)),
    ),
)
