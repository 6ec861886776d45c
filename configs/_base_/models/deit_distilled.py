"""DeiT-Ti with a distillation token as an image classifier for 1000 classes."""

_base_ = 'deit.py'

model = dict(
    type='mmlape.DistilledImageClassifier',
    backbone=dict(type='mmlape.DistilledVisionTransformer'),
    head=dict(type='mmlape.DistilledClsHead'),
    teacher=dict(type='TimmClassifier', model_name='regnety_160'),
    teacher_checkpoint='pretrained/regnety_160.pth',
)
