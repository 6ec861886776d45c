"""ViT of 7 x 7 patches, 10,000 images of Fashion-MNIST, 2-D ALiBi; ours: docs/results/position.md.

tools/train.py configs/classification/fashion_mnist/vit-mini-p4-alibi2d_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './vit-mini-p4_1xb128-5e_fashion-mnist-10k.py'

# the slopes for two heads, 1/16 and 1/256, hardly tell the offsets of 7 x 7 patches apart; chosen as table_rate was
slope = 16.0
model = dict(backbone=dict(pe_type=dict(type='alibi2d', slope=slope)))
