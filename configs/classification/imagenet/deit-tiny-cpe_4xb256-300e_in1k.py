"""DeiT-Ti on ImageNet-1K, conditional encoding alone. Expect 72.4 % top-1 (the CPVT paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-tiny-cpe_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../../_base_/models/deit.py',
    '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/deit_300e.py',
]
model = dict(backbone=dict(pe_type='cpe'))
