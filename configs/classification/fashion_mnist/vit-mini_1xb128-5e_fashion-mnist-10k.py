"""A small ViT on 10,000 images of Fashion-MNIST, no norm in its stem; ours: docs/results/dpn.md.

tools/train.py configs/classification/fashion_mnist/vit-mini_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './vit-lite-mini_1xb128-5e_fashion-mnist-10k.py'

mini = _base_.compact_mini
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.VisionTransformer',
        arch={key: mini[key] for key in ('embed_dims', 'num_layers', 'num_heads', 'feedforward_channels')},
        patch_size=mini.tokenizer.patch_size,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=_base_.init_std),
        **_base_.grey,
    ),
)
