"""ViT-B/16, Dual PatchNorm, fine-tuned at 384 pixels. Expect 82.8 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p16-dpn_4xb128-5k-ft384_in1k.py 4
"""

_base_ = './vit-base-p16_4xb128-5k-ft384_in1k.py'

load_from = 'pretrained/vit_base_p16_dpn.pth'
model = dict(backbone=dict(patch_norm='dual'))
