"""DeiT-B fine-tuned at 384 pixels from 224, LaPE: the PE is resized from 14x14 to 24x24; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-lape_4xb64-30e-ft384_in1k.py 4
"""

_base_ = './deit-base_4xb64-30e-ft384_in1k.py'

pretrained = 'pretrained/deit_base_lape.pth'
model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint=pretrained)))
