"""UperNet over Swin-T, for 150 classes, with an auxiliary FCN head on the map of stride 16; Swin-S is as wide."""

_base_ = 'upernet_vit-adapter.py'

embed_dims = 96
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.SwinTransformer',
        arch='tiny',
        pe_type='rpe',
        drop_path_rate=0.3,
        out_indices=(0, 1, 2, 3),
        out_type='featmap',
        pad_small_map=True,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/swin_tiny_patch4_window7_224.pth'),
    ),
    decode_head=dict(in_channels=[embed_dims * 2**stage for stage in range(4)]),
    auxiliary_head=dict(in_channels=4 * embed_dims),
    test_cfg=dict(_delete_=True, mode='whole'),
)
