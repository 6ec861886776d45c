"""Seg-S-Mask/16, LaPE, mmsegmentation's values. Expect 42.808 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/segmentation/segmenter_deit-small-lape_4xb2-160k-mmseg_ade20k.py 4
"""

_base_ = './segmenter_deit-small_4xb2-160k-mmseg_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth')))
