"""ViT-B/32, Dual PatchNorm, fine-tuned at 384 pixels. Expect 80.0 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p32-dpn_4xb128-5k-ft384_in1k.py 4
"""

_base_ = './vit-base-p32_4xb128-5k-ft384_in1k.py'

load_from = 'pretrained/vit_base_p32_dpn.pth'
model = dict(backbone=dict(patch_norm='dual'))
