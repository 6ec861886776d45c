"""ViT-S/16 on ImageNet-1K, norms of attention: post, of the FFN: post. No paper's figure; not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p16-ln-post-post_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in1k.py'

model = dict(backbone=dict(norm_placement=dict(attn='post', ffn='post')))
