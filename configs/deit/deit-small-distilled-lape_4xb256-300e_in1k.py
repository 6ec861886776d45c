"""Distilled DeiT-S, LaPE. Expect 81.48 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/deit/deit-small-distilled-lape_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmlape.models.classifiers.distillation'], allow_failed_imports=False)
model = dict(backbone=dict(arch='deit-small', pe_joining='lape'), head=dict(in_channels=384))
