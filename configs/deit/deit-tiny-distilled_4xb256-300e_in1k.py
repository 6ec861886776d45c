"""Distilled DeiT-Ti, default PE. Expect 74.16 % top-1 (the LaPE paper's); not run by us.

The teacher is timm's RegNetY-16GF; set ``model.teacher_checkpoint`` to its file, or ``model.teacher`` to another one.

tools/dist_train.sh configs/deit/deit-tiny-distilled_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmlape.models.classifiers.distillation'], allow_failed_imports=False)
