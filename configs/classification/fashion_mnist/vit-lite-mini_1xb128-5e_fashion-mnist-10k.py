"""A small ViT-Lite on 10,000 images of Fashion-MNIST, default PE; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/vit-lite-mini_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = [
    '../../_base_/models/compact.py',
    '../../_base_/models/compact_mini.py',
    '../../_base_/datasets/fashion_mnist.py',
    '../../_base_/schedules/fashion_mnist_mini.py',
]
mini = _base_.compact_mini
model = dict(
    data_preprocessor=_base_.normalisation,
    backbone=dict(
        arch=dict(_delete_=True, **mini),
        # so few steps need no regularisation
        attn_drop_rate=0.0,
        drop_path_rate=0.0,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=_base_.init_std),
        **_base_.grey,
    ),
    head=dict(in_channels=mini.embed_dims, loss=dict(label_smooth_val=0.0)),
)
train_dataloader = dict(dataset=dict(indices=10000))
