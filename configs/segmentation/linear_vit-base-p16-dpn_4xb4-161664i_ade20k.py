"""ViT-B/16, DPN, and a linear layer on ADE20K. Expect 46.1 mIoU (the DPN paper's, mean of ten seeds); not run by us.

tools/dist_train.sh configs/segmentation/linear_vit-base-p16-dpn_4xb4-161664i_ade20k.py 4
"""

_base_ = './linear_vit-base-p16_4xb4-161664i_ade20k.py'

model = dict(backbone=dict(patch_norm='dual', init_cfg=dict(checkpoint='pretrained/vit_base_p16_dpn.pth')))
