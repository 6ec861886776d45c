"""DeiT-S on ImageNet-1K, mixed rotary encoding alone. No paper's figure with this recipe; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-rope-mixed_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_type='rope-mixed'))
