"""ViT-B/16 fine-tuned at 384 pixels. Expect 82.2 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p16_4xb128-5k-ft384_in1k.py 4
"""

_base_ = './vit-base-p32_4xb128-5k-ft384_in1k.py'

load_from = 'pretrained/vit_base_p16.pth'
model = dict(backbone=dict(patch_size=16))
