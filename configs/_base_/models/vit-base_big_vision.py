"""ViT-B/16 as big_vision's AugReg recipes have it."""

_base_ = 'vit_big_vision.py'

embed_dims = 768
model = dict(
    backbone=dict(arch='deit-base', pe_type=dict(std=embed_dims**-0.5)),
    head=dict(in_channels=embed_dims, hidden_dim=embed_dims),
)
