"""ViT-B/32 as big_vision has it, to fine-tune on another set: its sigmoid loss, and a new head of zeros."""

_base_ = 'vit_big_vision.py'

embed_dims = 768
load_fresh = ['head.layers.head.']
model = dict(
    backbone=dict(arch='deit-base', patch_size=32, pe_type=dict(std=embed_dims**-0.5)),
    head=dict(in_channels=embed_dims, hidden_dim=embed_dims, init_cfg=dict(bias=0.0)),
)
